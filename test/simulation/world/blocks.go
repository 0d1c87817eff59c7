package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
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
		var bad []finding
		err := w.ask(end, func(ctx context.Context, c *client.Client) (err error) {
			bad, err = fsck(ctx, c, true)
			return err
		})
		switch {
		case err != nil:
			w.fail("SW4 replicas: the block store cannot be checked: %v", err)
			return
		case len(bad) == 0 || w.excused(bad):
			return
		case time.Until(end) < fsckPause:
			w.fail("SW4 replicas: %d extents lack replicas: %+v", len(bad), bad[0])
			return
		}
		time.Sleep(fsckPause)
	}
}

// A finding is an extent with missing or bad replicas.
type finding = api.BlobFinding

// excused reports whether only the disk that corrupts sectors lacks good replicas, and the scrub may not have come to them.
func (w inspector) excused(bad []finding) bool {
	if !w.corrupts() || w.plan.tuning.Repair.ScrubPeriod > 0 {
		return false
	}
	return !slices.ContainsFunc(bad, func(f finding) bool {
		good := 0
		for _, r := range f.Replicas {
			switch {
			case r.State == api.ReplicaGood:
				good++
			case r.Name != w.bad.name:
				return true
			}
		}
		return good < int(f.ReplicationFactor)-1
	})
}

// corrupts reports whether the plan corrupts sectors, which the scrub finds one after the other.
func (w inspector) corrupts() bool {
	return w.plan.corruptSnapshots || slices.Contains(w.plan.faults, diskCorruption) || slices.Contains(w.plan.faults, diskError)
}

// fsck checks all replicas and returns what is wrong. With deep, it reads them.
func fsck(ctx context.Context, c *client.Client, deep bool) (bad []finding, err error) {
	after := ""
	for {
		step, err := c.BlockStore().Fsck(ctx, after, deep)
		if err != nil {
			return nil, err
		}
		bad = append(bad, step.Findings...)
		if len(step.Silent) > 0 {
			return nil, fmt.Errorf("%v are silent", step.Silent)
		}
		if after = step.Next; after == "" {
			return bad, nil
		}
	}
}
