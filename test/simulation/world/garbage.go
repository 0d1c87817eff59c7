package world

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
)

// garbageRounds bounds how many rounds of garbage collection it takes until a round finds no garbage and no node
// keeps any in quarantine: garbage is warned of in one round, quarantined in another, and removed in a third; a round may
// fail because a new master began another.
const garbageRounds = 10

// judgeGarbage checks that no needed extent was taken for garbage. In plans with frequent rounds it
// waits until all garbage is removed (SW8).
func (w inspector) judgeGarbage() {
	if w.failed != "" {
		return
	}
	gc := w.plan.tuning.GC
	limit := garbageRounds*gc.Every + 3*(gc.Warn+gc.Grace) + healMax
	why := errors.New("not asked")
	clean := w.operators().await(time.Now().Add(limit), func(ctx context.Context, c *client.Client) error {
		s, err := c.BlockStore().Status(ctx)
		if why = err; err == nil {
			why = w.garbage(s)
		}
		return why
	})
	if !clean && w.plan.settled && gc.Every > 0 {
		w.fail("SW8 garbage: not removed in %v: %v", limit, why)
	}
}

// garbage returns an error if there is garbage; nil in plans without frequent rounds. It fails the run if garbage
// collection has stopped because a needed extent was in quarantine.
func (w inspector) garbage(s *client.StoreStatus) error {
	waits := error(nil)
	swept := false
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if alarm := n.Alarm + n.SweepHalted; alarm != "" {
			w.fail("SW8 garbage: %s has quarantined an extent that is needed: %s", n.Name, alarm)
			return nil
		}
		swept = swept || n.Sweeps > 0 && n.SweptFound == 0 && n.SweepError == ""
		if n.Error != "" || n.Quarantined > 0 {
			waits = fmt.Errorf("%s has %d extents in quarantine %s", n.Name, n.Quarantined, n.Error)
		}
	}
	switch {
	case !w.plan.settled || w.plan.tuning.GC.Every == 0:
		return nil
	case waits == nil && !swept:
		return errors.New("the last round of garbage collection found garbage")
	}
	return waits
}
