package gc

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/timing"
)

const (
	// statePoll is the interval at which a node with extents in quarantine reads whether garbage
	// collection is halted.
	statePoll = 20 * time.Second
	// evictionPermit is how long after such a read a full disk may remove extents from quarantine.
	// Two reads in between may fail.
	evictionPermit = 3 * statePoll
	// EvictionDelay is how long after an alarm the full disks of other nodes may still remove extents,
	// while the lock service answers: until the halt is in it, and the last permission has ended.
	EvictionDelay = statePoll + evictionPermit
)

// alarmWatch is what PermitEvictions remembers. Only its goroutine uses it.
type alarmWatch struct {
	reported string // the alarm of this node that is in the lock service, or was until Resume
}

// PermitEvictions permits evictions from quarantine while garbage collection is not halted, and halts it
// once this node raises the alarm, until ctx ends. A node that cannot read the state in the lock
// service evicts nothing.
func (c *Collector) PermitEvictions(ctx context.Context) {
	var w alarmWatch
	for {
		if err := c.permitEviction(ctx, &w); err != nil && ctx.Err() == nil {
			c.deps.Logger.Info("garbage collection state unknown", "err", err)
		}
		if timing.SleepOn(ctx, c.deps.Clock, statePoll) != nil {
			return
		}
	}
}

func (c *Collector) permitEviction(ctx context.Context, w *alarmWatch) error {
	ctx, cancel := context.WithTimeout(ctx, statePoll)
	defer cancel()
	alarm := c.deps.Disks.Alarm()
	if alarm != "" && alarm != w.reported {
		if err := c.recordAlarm(ctx, c.deps.Peers.Self(), alarm); err != nil {
			return err
		}
	}
	w.reported = alarm
	if alarm != "" || len(c.deps.Disks.Quarantined(local.ExtentID{Index: -1}, 1)) == 0 {
		return nil
	}
	began := time.Now()
	st, _, err := c.loadState(ctx)
	if err == nil && st.halted == "" {
		c.deps.Disks.PermitEviction(began.Add(evictionPermit))
	}
	return err
}

// recordAlarm records in the lock service that there must be no more rounds, because of a node's alarm.
func (c *Collector) recordAlarm(ctx context.Context, node, alarm string) error {
	st, gen, err := c.loadState(ctx)
	if err == nil && st.halted == "" {
		st.halted = node + ": " + alarm
		_, err = c.deps.Lists.Save(ctx, StatePath, encodeState(st), gen)
	}
	if err != nil {
		return fmt.Errorf("record that garbage collection is halted: %w", err)
	}
	return nil
}
