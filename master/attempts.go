package master

import "time"

const (
	// retryMin is the pause after a node's first failed attempt to join the group. It doubles with
	// each failure.
	retryMin = time.Second
	// retryMax bounds the pause: a repaired node votes within this time.
	retryMax = 5 * time.Minute
)

// attempts records, during one mastership, which nodes failed to join the group. The plan does not
// count on them until their next attempt.
type attempts map[string]*attempt

type attempt struct {
	failures int
	failed   time.Time // the last failure
	// behind is when the node was first seen staged without having caught up; zero if it is not.
	behind time.Time
}

// retry returns when the node may be staged again.
func (a *attempt) retry() time.Time {
	if a.failures == 0 {
		return time.Time{}
	}
	return a.failed.Add(min(retryMin<<min(a.failures-1, 20), retryMax))
}

// fail records that staging a node failed, or that it was removed before it had a vote.
func (all attempts) fail(id string, now time.Time) {
	a := all.of(id)
	a.failures, a.failed, a.behind = a.failures+1, now, time.Time{}
}

func (all attempts) of(id string) *attempt {
	a := all[id]
	if a == nil {
		a = &attempt{}
		all[id] = a
	}
	return a
}

// apply sets Deferred of the servers that the plan must not count on now. Stable is how long a
// staged server may take to catch up before the plan stops waiting for it.
func (all attempts) apply(servers []Server, group []Voter, stable time.Duration, now time.Time) {
	for i := range servers {
		s := &servers[i]
		v, in := find(group, s.ID)
		switch {
		case in && (!v.Staged || v.CaughtUp):
			delete(all, s.ID)
		case in:
			a := all.of(s.ID)
			if a.behind.IsZero() {
				a.behind = now
			}
			s.Deferred = now.Sub(a.behind) >= stable
		case all[s.ID] != nil:
			a := all[s.ID]
			if a.behind = (time.Time{}); s.Alive && now.Sub(a.failed) > s.Since { // it has restarted since
				a.failures = 0
			}
			s.Deferred = now.Before(a.retry())
		}
	}
}
