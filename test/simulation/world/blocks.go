package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
)

// redundancyMax bounds the time until everything has all replicas again, without faults: the repairer
// waits 30 s for a node that is gone, scans each minute, and retries a copy after at most 5 minutes.
const redundancyMax = 10 * time.Minute

// fsckPause is the pause between two checks of all replicas.
const fsckPause = 10 * time.Second

// judgeBlocks waits until everything has all replicas, and then reads them all (SW4). It is done for
// some plans, since it takes long.
func (w inspector) judgeBlocks() {
	if !w.plan.settled || w.failed != "" {
		return
	}
	began := time.Now()
	var why error
	if !w.operators().await(began.Add(redundancyMax), func(ctx context.Context, c *client.Client) error {
		why = w.operators().redundant(ctx, c)
		return why
	}) {
		w.fail("SW4 replicas: not all are there %v after all faults: %v", redundancyMax, why)
		return
	}
	w.most("ms until all replicas", time.Since(began).Milliseconds())
	w.readReplicas(began.Add(2 * redundancyMax))
	w.count("checks of the block store")
}

// readReplicas reads all replicas, until nothing is wrong: the extents of a commit log that was interrupted are completed later.
func (w inspector) readReplicas(end time.Time) {
	for {
		var bad []string
		err := w.ask(end, func(ctx context.Context, c *client.Client) (err error) {
			bad, err = fsck(ctx, c, true)
			return err
		})
		switch {
		case err != nil:
			w.fail("SW4 replicas: the block store cannot be checked: %v", err)
			return
		case len(bad) == 0 || w.corrupts():
			return
		case time.Until(end) < fsckPause:
			w.fail("SW4 replicas: %d extents lack replicas: %s", len(bad), bad[0])
			return
		}
		time.Sleep(fsckPause)
	}
}

// corrupts reports whether the plan corrupts sectors, which the scrub finds one after the other.
func (w inspector) corrupts() bool {
	return slices.Contains(w.plan.faults, diskCorruption) || slices.Contains(w.plan.faults, diskError)
}

// fsck checks all replicas and returns what is wrong. With deep, it reads them.
func fsck(ctx context.Context, c *client.Client, deep bool) (bad []string, err error) {
	after := ""
	for {
		step, err := c.BlockStore().Fsck(ctx, after, deep)
		if err != nil {
			return nil, err
		}
		for _, f := range step.Findings {
			bad = append(bad, fmt.Sprintf("%+v", f))
		}
		if len(step.Silent) > 0 {
			return nil, fmt.Errorf("%v are silent", step.Silent)
		}
		if after = step.Next; after == "" {
			return bad, nil
		}
	}
}
