package voter

import "time"

// asidePeriod is the interval between two looks for old logs.
const asidePeriod = time.Hour

// RemoveOldLogs removes the node's logs of former votes when they were set aside long enough ago (identity.AsideKept) and leased reports that the node
// certainly holds its lock: the lock service then works without them. It looks each hour, until the node closes.
func (v *Voter) RemoveOldLogs(leased func() bool) {
	tick := time.NewTicker(asidePeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-v.Ctx.Done():
			return
		}
		if !leased() {
			continue
		}
		removed, err := v.Self.RemoveAside(time.Now())
		for _, path := range removed {
			v.Log.Info("log of a former vote removed", "file", path)
		}
		if err != nil {
			v.Log.Warn("old log of the lock service not removed", "err", err)
		}
	}
}
