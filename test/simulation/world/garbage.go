package world

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// garbageRounds bounds how many rounds of garbage collection it takes until garbage is removed: it is warned of
// in one round, quarantined in another, and removed in a third; a round may fail because a new master began another.
const garbageRounds = 10

// judgeGarbage checks that no needed extent was taken for garbage. In plans with frequent rounds it
// waits until as much is removed as there was in the beginning (SW8): compactions make more all the time.
func (w inspector) judgeGarbage() {
	if w.failed != "" {
		return
	}
	gc := w.plan.tuning.GC
	limit := garbageRounds*gc.Every + 3*(gc.Warn+gc.Grace) + healMax
	x := rounds{waits: errors.New("no round has ended")}
	clean := w.operators().await(time.Now().Add(limit), func(ctx context.Context, c *client.Client) error {
		s, err := c.BlockStore().Status(ctx)
		if err != nil {
			return err
		}
		for i := range s.Nodes {
			if n := &s.Nodes[i]; n.Alarm+n.SweepHalted != "" {
				w.fail("SW8 garbage: %s has quarantined an extent that is needed: %s", n.Name, n.Alarm+n.SweepHalted)
				return nil
			}
			x.note(&s.Nodes[i])
		}
		if !w.plan.settled || gc.Every == 0 {
			return nil
		}
		return x.waits
	})
	if !clean && w.plan.settled && gc.Every > 0 {
		w.fail("SW8 garbage: not removed in %v: %v", limit, x.waits)
	}
}

// rounds are the rounds of garbage collection since the judge looks.
type rounds struct {
	last    int64 // the number of the last one
	left    int64 // the garbage of the first one that is not known to be removed
	waits   error // nil when none is left
	started bool
}

// note notes the last round of a node, if it ran one since the last look.
func (x *rounds) note(n *api.NodeStore) {
	switch {
	case n.SweepRound <= x.last || n.SweepError != "":
		return
	case !x.started:
		x.started, x.left = true, n.SweptFound
	default: // some of what was found may have got a name since
		x.left = min(x.left-n.SweptRemoved, n.SweptFound)
	}
	x.last = n.SweepRound
	x.waits = nil
	if x.left > 0 {
		x.waits = fmt.Errorf("%d extents of garbage are left after round %d", x.left, x.last)
	}
}
