package blobfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// gcNode is this node's part in garbage collection. It starts empty: an extent is quarantined
// only if two rounds since the process started found it to be garbage.
type gcNode struct {
	// mu guards what follows. One call at a time holds it while it lists and moves local files.
	mu       sync.Mutex
	round    uint64 // the current or last round
	begun    bool   // round began in this process and has not ended
	extents  gcSet[ExtentID]
	replicas gcSet[api.ReplicaKey]
	// planned means that back and due hold the steps that remain at the end of the round. Those of
	// back take extents out of quarantine and run first, even if they raise the alarm. Those of due
	// quarantine and remove.
	planned   bool
	back, due []gcStep
}

type gcStep func(ctx context.Context, out *api.Swept) error

// gcSet is the state of garbage collection for extents, or for log replicas.
type gcSet[K comparable] struct {
	first   K
	compare func(a, b K) int
	judged  K    // the last one judged
	page    []K  // the last page listed
	all     bool // all are judged
	garbage map[K]bool
	warned  map[K]time.Duration // garbage of earlier rounds, and when it was first found
}

func (x *gcSet[K]) init(first K, compare func(a, b K) int) {
	x.first, x.compare = first, compare
	x.warned = map[K]time.Duration{}
}

func (x *gcSet[K]) begin() {
	x.judged, x.page, x.all = x.first, nil, false
	x.garbage = map[K]bool{}
}

// list records a listed page. An empty page means that all are judged.
func (x *gcSet[K]) list(page []K) { x.page, x.all = page, len(page) == 0 }

// judge records which extents of the last page are garbage. It rejects any that the page does not
// have.
func (x *gcSet[K]) judge(upTo K, garbage []K) error {
	i := slices.Index(x.page, upTo)
	if i < 0 || slices.ContainsFunc(garbage, func(k K) bool { return !slices.Contains(x.page[:i+1], k) }) {
		return fmt.Errorf("judged extents were not listed: %w", api.ErrStaleRound)
	}
	for _, k := range garbage {
		x.garbage[k] = true
	}
	x.judged, x.page = upTo, nil
	return nil
}

// warn merges the garbage of this round into warned, and drops from warned what is no longer
// garbage. It returns the garbage that was first found at least age ago, and the number of new
// entries. Garbage that is in quarantine already is skipped.
func (x *gcSet[K]) warn(now, age time.Duration, quarantined func(K) bool) (old []K, fresh int) {
	warned := make(map[K]time.Duration)
	for k := range x.garbage {
		if quarantined(k) {
			continue
		}
		at, known := x.warned[k]
		if !known {
			at = now
			fresh++
		} else if now-at >= age {
			old = append(old, k)
		}
		warned[k] = at
	}
	x.warned = warned
	slices.SortFunc(old, x.compare)
	return old, fresh
}

func (n *gcNode) init() {
	n.extents.init(ExtentID{Index: -1}, local.CompareExtents)
	n.replicas.init(api.ReplicaKey{}, api.ReplicaKey.Compare)
}

// in calls do if round is the current one, else returns api.ErrStaleRound.
func (n *gcNode) in(round uint64, do func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.begun || n.round != round {
		return fmt.Errorf("round %d, current round %d: %w", round, n.round, api.ErrStaleRound)
	}
	return do()
}

// BeginSweep implements api.Sweep.
func (v server) BeginSweep(_ context.Context, round uint64) (string, error) {
	n := &v.s.gc
	n.mu.Lock()
	defer n.mu.Unlock()
	if round <= n.round {
		return "", fmt.Errorf("round %d after %d: %w", round, n.round, api.ErrStaleRound)
	}
	n.round, n.begun, n.planned, n.back, n.due = round, true, false, nil, nil
	v.s.disks.SetRound(round)
	n.extents.begin()
	n.replicas.begin()
	return v.s.Alarm(), nil
}

// SweepPins implements api.Sweep.
func (v server) SweepPins(_ context.Context, round uint64, after ID, max int) (ids []ID, err error) {
	err = v.s.gc.in(round, func() error {
		ids = v.s.pins.list(after, min(max, api.SweepMax))
		return nil
	})
	return ids, err
}

// SweepExtents implements api.Sweep.
func (v server) SweepExtents(_ context.Context, round uint64, max int) (page []ExtentID, err error) {
	n := &v.s.gc
	err = n.in(round, func() error {
		for _, x := range v.s.disks.SweepExtents(round, n.extents.judged, min(max, api.SweepMax)) {
			page = append(page, x.ID)
		}
		n.extents.list(page)
		return nil
	})
	return page, err
}

// JudgeExtents implements api.Sweep.
func (v server) JudgeExtents(_ context.Context, round uint64, upTo ExtentID, garbage []ExtentID) (string, error) {
	n := &v.s.gc
	err := n.in(round, func() error { return n.extents.judge(upTo, garbage) })
	return v.s.Alarm(), err
}

// SweepReplicas implements api.Sweep.
func (v server) SweepReplicas(_ context.Context, round uint64, max int) (page []api.SweepReplica, err error) {
	n := &v.s.gc
	err = n.in(round, func() error {
		var keys []api.ReplicaKey
		for _, x := range v.s.disks.SweepReplicas(round, n.replicas.judged.Log, n.replicas.judged.Seq, min(max, api.SweepMax)) {
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
func (v server) JudgeReplicas(_ context.Context, round uint64, upTo api.ReplicaKey, garbage []api.ReplicaKey) (string, error) {
	n := &v.s.gc
	err := n.in(round, func() error { return n.replicas.judge(upTo, garbage) })
	return v.s.Alarm(), err
}

// gcBatch is how many steps one EndSweep runs: a second of renames and removals on a slow disk.
const gcBatch = 256

// EndSweep implements api.Sweep.
func (v server) EndSweep(ctx context.Context, round uint64) (out api.Swept, err error) {
	n := &v.s.gc
	err = n.in(round, func() error {
		if !n.extents.all || !n.replicas.all {
			return fmt.Errorf("not all extents were judged: %w", api.ErrStaleRound)
		}
		if !n.planned {
			n.planned = true
			v.planExtents(round, &out)
			v.planReplicas(round, &out)
		}
		for range gcBatch {
			step := n.next(v.s.Alarm() != "")
			if step == nil {
				break
			}
			if err := step(ctx, &out); err != nil {
				v.s.log.Warn("garbage collection step failed", "round", round, "err", err)
			}
		}
		out.More = len(n.back)+len(n.due) > 0
		n.begun = out.More
		out.Alarm = v.s.Alarm()
		return nil
	})
	return out, err
}

// next returns the next step, nil if there is none. While the alarm is raised extents are only
// taken out of quarantine.
func (n *gcNode) next(alarm bool) (step gcStep) {
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
func (v server) planExtents(round uint64, out *api.Swept) {
	n, d := &v.s.gc, v.s.disks
	quarantined := map[ExtentID]bool{}
	for after := n.extents.first; ; {
		page := d.Quarantined(after, api.SweepMax)
		if len(page) == 0 {
			break
		}
		for _, q := range page {
			quarantined[q.ID] = true
			v.planQuarantined(n.extents.garbage[q.ID], q.Since, quarantineOps{
				name:    "extent " + q.ID.String(),
				revive:  func(ctx context.Context) error { return d.ReviveExtent(ctx, q.ID) },
				drop:    func(ctx context.Context) error { return d.DropQuarantined(ctx, q.ID) },
				confirm: func() { d.ConfirmQuarantined(q.ID, round) },
				bytes:   q.FileBytes,
			})
		}
		after = page[len(page)-1].ID
	}
	old, fresh := n.extents.warn(v.s.cluster.Clock.Now(), v.s.cluster.Sweep.Warn, func(x ExtentID) bool { return quarantined[x] })
	out.Warned += fresh
	for _, x := range old {
		n.due = append(n.due, func(ctx context.Context, out *api.Swept) error {
			if v.s.pins.has(x.Blob) {
				return nil // pinned after the Sweeper read the pins
			}
			err := d.QuarantineExtent(ctx, x, round)
			if errors.Is(err, local.ErrNoExtent) {
				return nil
			}
			v.s.cache.forgetExtent(x)
			if err == nil {
				delete(n.extents.warned, x)
				out.Quarantined++
			}
			return err
		})
	}
}

// planReplicas is planExtents for log replicas.
func (v server) planReplicas(round uint64, out *api.Swept) {
	n, d := &v.s.gc, v.s.disks
	quarantined := map[api.ReplicaKey]bool{}
	for _, x := range d.LogReplicas() {
		if x.QuarantinedSince.IsZero() {
			continue
		}
		k := api.ReplicaKey{Log: x.Log, Seq: x.Seq}
		quarantined[k] = true
		v.planQuarantined(n.replicas.garbage[k], x.QuarantinedSince, quarantineOps{
			name:    fmt.Sprintf("extent %d of log %s", x.Seq, x.Log),
			revive:  func(ctx context.Context) error { return d.ReviveLogReplica(ctx, x.Log, x.Seq) },
			drop:    func(ctx context.Context) error { return d.DropQuarantinedLog(ctx, x.Log, x.Seq) },
			confirm: func() {},
			bytes:   x.Bytes,
		})
	}
	old, fresh := n.replicas.warn(v.s.cluster.Clock.Now(), v.s.cluster.Sweep.Warn, func(k api.ReplicaKey) bool { return quarantined[k] })
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
func (v server) planQuarantined(garbage bool, since time.Time, ops quarantineOps) {
	n := &v.s.gc
	switch {
	case !garbage:
		n.back = append(n.back, func(ctx context.Context, out *api.Swept) error {
			v.s.disks.RaiseAlarm(ops.name + " is needed but was in quarantine")
			out.Revived++
			return ops.revive(ctx)
		})
	case time.Since(since) < v.s.cluster.Sweep.Grace:
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
func (v server) ReviveBlob(ctx context.Context, blob ID) (int, error) {
	revived := 0
	for {
		page := v.s.disks.Quarantined(ExtentID{Blob: blob, Index: -1}, 1)
		if len(page) == 0 || page[0].ID.Blob != blob {
			return revived, nil
		}
		if err := v.s.disks.ReviveExtent(ctx, page[0].ID); err != nil {
			return revived, err
		}
		revived++
	}
}

// resumedTimeout is how long ClearAlarm waits to read from the lock service whether garbage
// collection is halted.
const resumedTimeout = time.Second

// ClearAlarm implements api.Sweep.
func (v server) ClearAlarm(ctx context.Context) error {
	if err := v.s.disks.ClearAlarm(); err != nil {
		return err
	}
	// Refreshes the status: otherwise it would be halted until the next round of a Sweeper on this
	// node.
	ctx, cancel := context.WithTimeout(ctx, resumedTimeout)
	defer cancel()
	if _, err := v.s.SweepHalted(ctx); err != nil {
		v.s.log.Info("garbage collection state unknown", "err", err)
	}
	return nil
}
