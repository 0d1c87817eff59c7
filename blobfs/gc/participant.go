package gc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// Participant is this node's part in garbage collection. It starts empty: an extent is quarantined
// only if two rounds since the process started found it to be garbage.
type Participant struct {
	c *Collector

	// mu guards what follows. One call at a time holds it while it lists and moves local files.
	mu       sync.Mutex
	round    uint64 // the current or last round
	begun    bool   // round began in this process and has not ended
	extents  progress[local.ExtentID]
	replicas progress[api.ReplicaKey]
	// planned means that back and due hold the steps that remain at the end of the round. Those of
	// back take extents out of quarantine and run first, even if they raise the alarm. Those of due
	// quarantine and remove.
	planned   bool
	back, due []step
}

// newParticipant returns a node's part in garbage collection.
func newParticipant(c *Collector) *Participant {
	n := &Participant{c: c}
	n.extents.init(local.ExtentID{Index: -1}, local.CompareExtents)
	n.replicas.init(api.ReplicaKey{}, api.ReplicaKey.Compare)
	return n
}

type step func(ctx context.Context, out *api.Swept) error

// in calls do if round is the current one, else returns api.ErrStaleRound.
func (n *Participant) in(round uint64, do func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.begun || n.round != round {
		return fmt.Errorf("round %d, current round %d: %w", round, n.round, api.ErrStaleRound)
	}
	return do()
}

// BeginSweep implements api.Sweep.
func (n *Participant) BeginSweep(_ context.Context, round uint64) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if round <= n.round {
		return "", fmt.Errorf("round %d after %d: %w", round, n.round, api.ErrStaleRound)
	}
	n.round, n.begun, n.planned, n.back, n.due = round, true, false, nil, nil
	n.c.deps.Disks.SetRound(round)
	n.extents.begin()
	n.replicas.begin()
	return n.c.deps.Disks.Alarm(), nil
}

// SweepPins implements api.Sweep.
func (n *Participant) SweepPins(_ context.Context, round uint64, after local.ID, max int) (ids []local.ID, err error) {
	err = n.in(round, func() error {
		ids = n.c.deps.Pins.list(after, min(max, api.SweepMax))
		return nil
	})
	return ids, err
}

// SweepExtents implements api.Sweep.
func (n *Participant) SweepExtents(_ context.Context, round uint64, max int) (page []local.ExtentID, err error) {
	err = n.in(round, func() error {
		page = n.c.deps.Disks.SweepExtents(round, n.extents.judged, min(max, api.SweepMax))
		n.extents.list(page)
		return nil
	})
	return page, err
}

// JudgeExtents implements api.Sweep.
func (n *Participant) JudgeExtents(_ context.Context, round uint64, upTo local.ExtentID, garbage []local.ExtentID) (string, error) {
	err := n.in(round, func() error { return n.extents.judge(upTo, garbage) })
	return n.c.deps.Disks.Alarm(), err
}

// SweepReplicas implements api.Sweep.
func (n *Participant) SweepReplicas(_ context.Context, round uint64, max int) (page []api.SweepReplica, err error) {
	err = n.in(round, func() error {
		var keys []api.ReplicaKey
		for _, x := range n.c.deps.Disks.SweepReplicas(round, n.replicas.judged.Log, n.replicas.judged.Seq, min(max, api.SweepMax)) {
			k := api.ReplicaKey{Log: x.Log, Seq: x.Seq}
			keys = append(keys, k)
			page = append(page, api.SweepReplica{ReplicaKey: k, Server: x.Server})
		}
		n.replicas.list(keys)
		return nil
	})
	return page, err
}

// JudgeReplicas implements api.Sweep.
func (n *Participant) JudgeReplicas(_ context.Context, round uint64, upTo api.ReplicaKey, garbage []api.ReplicaKey) (string, error) {
	err := n.in(round, func() error { return n.replicas.judge(upTo, garbage) })
	return n.c.deps.Disks.Alarm(), err
}

// stepsMax is how many steps one EndSweep runs: a second of renames and removals on a slow disk.
const stepsMax = 256

// EndSweep implements api.Sweep.
func (n *Participant) EndSweep(ctx context.Context, round uint64) (out api.Swept, err error) {
	err = n.in(round, func() error {
		if !n.extents.all || !n.replicas.all {
			return fmt.Errorf("not all extents were judged: %w", api.ErrStaleRound)
		}
		if !n.planned {
			n.planned = true
			n.planExtents(round, &out)
			n.planReplicas(round, &out)
		}
		for range stepsMax {
			step := n.next(n.c.deps.Disks.Alarm() != "")
			if step == nil {
				break
			}
			if err := step(ctx, &out); err != nil {
				n.c.deps.Logger.Warn("garbage collection step failed", "round", round, "err", err)
			}
		}
		out.More = len(n.back)+len(n.due) > 0
		n.begun = out.More
		out.Alarm = n.c.deps.Disks.Alarm()
		return nil
	})
	return out, err
}

// next returns the next step, nil if there is none. While the alarm is raised extents are only
// taken out of quarantine.
func (n *Participant) next(alarm bool) (step step) {
	if alarm {
		n.due = nil
	}
	steps := &n.back
	if len(n.back) == 0 {
		steps = &n.due
	}
	if len(*steps) > 0 {
		step = (*steps)[0]
		*steps = (*steps)[1:]
	}
	return step
}

// planExtents plans the steps at the end of a round.
func (n *Participant) planExtents(round uint64, out *api.Swept) {
	d := n.c.deps.Disks
	quarantined := map[local.ExtentID]bool{}
	for after := n.extents.first; ; {
		page := d.Quarantined(after, api.SweepMax)
		if len(page) == 0 {
			break
		}
		for _, q := range page {
			quarantined[q.ID] = true
			n.planQuarantined(n.extents.garbage[q.ID], q.Since, quarantineOps{
				name:    "extent " + q.ID.String(),
				revive:  func(ctx context.Context) error { return d.ReviveExtent(ctx, q.ID) },
				drop:    func(ctx context.Context) error { return d.DropQuarantined(ctx, q.ID) },
				confirm: func() { d.ConfirmQuarantined(q.ID, round) },
				bytes:   q.FileBytes,
			})
		}
		after = page[len(page)-1].ID
	}
	old, fresh := n.extents.warn(n.c.deps.Clock.Now(), n.c.cfg.Warn, func(x local.ExtentID) bool { return quarantined[x] })
	out.Warned += fresh
	for _, x := range old {
		n.due = append(n.due, func(ctx context.Context, out *api.Swept) error {
			if n.c.deps.Pins.has(x.Blob) {
				return nil // pinned after the Sweeper read the pins
			}
			err := d.QuarantineExtent(ctx, x, round)
			if errors.Is(err, local.ErrNoExtent) {
				return nil
			}
			n.c.deps.Forget(x)
			if err == nil {
				delete(n.extents.warned, x)
				out.Quarantined++
			}
			return err
		})
	}
}

// planReplicas is planExtents for log replicas.
func (n *Participant) planReplicas(round uint64, out *api.Swept) {
	d := n.c.deps.Disks
	quarantined := map[api.ReplicaKey]bool{}
	for _, x := range d.LogReplicas() {
		if x.QuarantinedSince.IsZero() {
			continue
		}
		k := api.ReplicaKey{Log: x.Log, Seq: x.Seq}
		quarantined[k] = true
		n.planQuarantined(n.replicas.garbage[k], x.QuarantinedSince, quarantineOps{
			name:    fmt.Sprintf("extent %d of log %s", x.Seq, x.Log),
			revive:  func(ctx context.Context) error { return d.ReviveLogReplica(ctx, x.Log, x.Seq) },
			drop:    func(ctx context.Context) error { return d.DropQuarantinedLog(ctx, x.Log, x.Seq) },
			confirm: func() {},
			bytes:   x.Bytes,
		})
	}
	old, fresh := n.replicas.warn(n.c.deps.Clock.Now(), n.c.cfg.Warn, func(k api.ReplicaKey) bool { return quarantined[k] })
	out.Warned += fresh
	for _, k := range old {
		n.due = append(n.due, func(ctx context.Context, out *api.Swept) error {
			err := d.QuarantineLogReplica(ctx, k.Log, k.Seq, round)
			if err == nil {
				delete(n.replicas.warned, k)
				out.Quarantined++
			}
			return err
		})
	}
}

// quarantineOps are the operations on an extent or log replica in quarantine.
type quarantineOps struct {
	name         string
	revive, drop func(ctx context.Context) error
	confirm      func()
	bytes        int64
}

// planQuarantined plans the step for an extent or log replica in quarantine. It was there when the
// round began: only the end of a round quarantines.
func (n *Participant) planQuarantined(garbage bool, since time.Time, ops quarantineOps) {
	switch {
	case !garbage:
		n.back = append(n.back, func(ctx context.Context, out *api.Swept) error {
			n.c.deps.Disks.RaiseAlarm(ops.name + " is needed but was in quarantine")
			out.Revived++
			return ops.revive(ctx)
		})
	case time.Since(since) < n.c.cfg.Grace:
		ops.confirm()
	default:
		n.due = append(n.due, func(ctx context.Context, out *api.Swept) error {
			err := ops.drop(ctx)
			if err == nil {
				out.Removed++
				out.Bytes += ops.bytes
			}
			return err
		})
	}
}

// ReviveBlob implements api.Sweep.
func (n *Participant) ReviveBlob(ctx context.Context, blob local.ID) (int, error) {
	revived := 0
	for {
		page := n.c.deps.Disks.Quarantined(local.ExtentID{Blob: blob, Index: -1}, 1)
		if len(page) == 0 || page[0].ID.Blob != blob {
			return revived, nil
		}
		if err := n.c.deps.Disks.ReviveExtent(ctx, page[0].ID); err != nil {
			return revived, err
		}
		revived++
	}
}

// resumedTimeout is how long ClearAlarm waits to read from the lock service whether garbage
// collection is halted.
const resumedTimeout = time.Second

// ClearAlarm implements api.Sweep.
func (n *Participant) ClearAlarm(ctx context.Context) error {
	if err := n.c.deps.Disks.ClearAlarm(); err != nil {
		return err
	}
	// Refreshes the status: otherwise it would be halted until the next round of a Sweeper on this
	// node.
	ctx, cancel := context.WithTimeout(ctx, resumedTimeout)
	defer cancel()
	if _, err := n.c.Halted(ctx); err != nil {
		n.c.deps.Logger.Info("garbage collection state unknown", "err", err)
	}
	return nil
}
