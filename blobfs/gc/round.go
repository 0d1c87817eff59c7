package gc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/internal/planted"
)

// round is one round of garbage collection.
type round struct {
	w *Sweeper
	c *Collector
	Report
	nodes []*roundNode
}

// roundNode is a node that takes part in a round.
type roundNode struct {
	id   string
	peer api.Peer
	// err is why the round stopped collecting on this node. The node's pins still count.
	err error
}

// Round makes one round. It returns ErrHalted, api.ErrStaleRound if another Sweeper is active,
// or an error of the roots or of the lists. It returns api.ErrUnreachable if a node does not answer
// that was not down for Config.Away. After an error, nodes that have not received EndSweep
// collect nothing.
func (w *Sweeper) Round(ctx context.Context) (Report, error) {
	r := &round{w: w, c: w.c}
	err := r.run(ctx)
	if err != nil {
		err = fmt.Errorf("garbage collection round %d: %w", r.Round, err)
	}
	if ctx.Err() == nil {
		w.c.status.record(r.Report, err)
	}
	return r.Report, err
}

func (r *round) run(ctx context.Context) error {
	var err error
	if r.Round, err = r.c.nextRound(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for from := uint64(0); ; {
		m, err := r.mark(ctx, from)
		if err != nil {
			return err
		}
		for _, n := range r.nodes {
			if err := r.extents(ctx, n, m); err != nil {
				return err
			}
		}
		if m.to == math.MaxUint64 {
			break
		}
		from = m.to + 1
	}
	for _, n := range r.nodes {
		if err := r.replicas(ctx, n); err != nil {
			return err
		}
	}
	return r.end(ctx)
}

// ask calls a node with CallTimeout.
func (r *round) ask(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.c.deps.CallTimeout)
	defer cancel()
	return call(ctx)
}

// begin begins the round on all nodes. Extents created later are not judged. Pins are read after
// it, and roots after the pins. A node that does not answer fails the round, unless it was down for
// Config.Away.
func (r *round) begin(ctx context.Context) error {
	now := r.c.deps.Clock.Now()
	var missing []string
	for _, b := range r.beginAll(ctx) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(b.err, api.ErrStaleRound):
			return fmt.Errorf("%s: %w", b.id, b.err)
		case b.err != nil:
			if _, known := r.w.downSince[b.id]; !known {
				r.w.downSince[b.id] = now
			}
			if now-r.w.downSince[b.id] < r.c.cfg.Away {
				missing = append(missing, fmt.Sprintf("%s: %v", b.id, b.err))
			}
			r.Without = append(r.Without, b.id)
			continue
		case b.alarm != "":
			return r.stop(ctx, b.id, b.alarm)
		}
		delete(r.w.downSince, b.id)
		r.nodes = append(r.nodes, b.roundNode)
	}
	r.Nodes = len(r.nodes)
	if len(missing) > 0 {
		return fmt.Errorf("%w: pins unknown: %s", api.ErrUnreachable, strings.Join(missing, "; "))
	}
	return nil
}

// begunNode is a node's answer to BeginSweep.
type begunNode struct {
	*roundNode
	alarm string
}

// beginAll calls BeginSweep on all nodes.
func (r *round) beginAll(ctx context.Context) []begunNode {
	var all []begunNode
	for _, id := range r.c.deps.Peers.All() {
		all = append(all, begunNode{roundNode: &roundNode{id: id}})
	}
	ctx, cancel := context.WithTimeout(ctx, r.c.deps.ReplyTimeout)
	defer cancel()
	var group sync.WaitGroup
	slots := make(chan struct{}, members.CallsMax)
	for i := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			b := &all[i]
			if b.peer, b.err = r.c.deps.Peers.Any(ctx, b.id); b.err == nil {
				b.alarm, b.err = b.peer.BeginSweep(ctx, r.Round)
			}
		})
	}
	group.Wait()
	return all
}

// mark collects the blobs that are needed, in a range of IDs that fits into memory.
func (r *round) mark(ctx context.Context, from uint64) (*marks, error) {
	r.Passes++
	m := newMarks(from, r.c.cfg.Marks)
	for _, n := range r.nodes {
		if err := r.pins(ctx, n, m); err != nil {
			return nil, fmt.Errorf("pins of %s: %w", n.id, err)
		}
	}
	for _, roots := range r.w.roots {
		if err := roots.Mark(ctx, m.add); err != nil {
			return nil, fmt.Errorf("roots: %w", err)
		}
	}
	m.settle()
	return m, ctx.Err()
}

// pins marks the blobs that a node uses.
func (r *round) pins(ctx context.Context, n *roundNode, m *marks) error {
	if planted.On(planted.GCWithoutPins) {
		return nil
	}
	for after := (local.ID{}); ; {
		var page []local.ID
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			page, err = n.peer.SweepPins(ctx, r.Round, after, api.SweepMax)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, id := range page {
			m.add(id)
		}
		after = page[len(page)-1]
	}
}

// nodeLost records that a node takes no further part. It returns an error only if a later round has
// begun or ctx ended.
func (r *round) nodeLost(ctx context.Context, n *roundNode, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, api.ErrStaleRound) {
		return fmt.Errorf("%s: %w", n.id, err)
	}
	n.err = err
	r.Without = append(r.Without, n.id)
	return nil
}

// extents judges the extents of a node within the range of the marks.
func (r *round) extents(ctx context.Context, n *roundNode, m *marks) error {
	for n.err == nil {
		var page, garbage []local.ExtentID
		alarm := ""
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			if page, err = n.peer.SweepExtents(ctx, r.Round, api.SweepMax); err != nil {
				return err
			}
			beyond := slices.IndexFunc(page, func(x local.ExtentID) bool { return !m.covers(x.Blob) })
			if beyond >= 0 {
				page = page[:beyond]
			}
			if len(page) == 0 {
				return nil
			}
			for _, x := range page {
				if !m.has(x.Blob) {
					garbage = append(garbage, x)
				}
			}
			alarm, err = n.peer.JudgeExtents(ctx, r.Round, page[len(page)-1], garbage)
			return err
		})
		if err != nil {
			return r.nodeLost(ctx, n, err)
		}
		if alarm != "" {
			return r.stop(ctx, n.id, alarm)
		}
		r.Listed += len(page)
		r.Garbage += len(garbage)
		if len(page) == 0 {
			return nil
		}
	}
	return nil
}

// replicas judges a node's log replicas: those that their log's list names are needed.
func (r *round) replicas(ctx context.Context, n *roundNode) error {
	for n.err == nil {
		var page []api.SweepReplica
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			page, err = n.peer.SweepReplicas(ctx, r.Round, api.SweepMax)
			return err
		})
		if err != nil {
			return r.nodeLost(ctx, n, err)
		}
		if len(page) == 0 {
			return nil
		}
		garbage, err := r.unlisted(ctx, n.id, page)
		if err != nil {
			return err
		}
		alarm := ""
		err = r.ask(ctx, func(ctx context.Context) (err error) {
			alarm, err = n.peer.JudgeReplicas(ctx, r.Round, page[len(page)-1].ReplicaKey, garbage)
			return err
		})
		if err != nil {
			return r.nodeLost(ctx, n, err)
		}
		if alarm != "" {
			return r.stop(ctx, n.id, alarm)
		}
		r.Listed += len(page)
		r.Garbage += len(garbage)
	}
	return nil
}

// unlisted returns the replicas of a node that no list names.
func (r *round) unlisted(ctx context.Context, node string, page []api.SweepReplica) (garbage []api.ReplicaKey, err error) {
	var named map[uint64]bool // extents of the log of the previous replica
	for i, x := range page {
		if i == 0 || page[i-1].Log != x.Log || page[i-1].Server != x.Server {
			if named, err = r.namedExtents(ctx, node, x); err != nil {
				return nil, err
			}
		}
		if named != nil && !named[x.Seq] {
			garbage = append(garbage, x.ReplicaKey)
		}
	}
	return garbage, nil
}

// namedExtents returns the extents of a log of which a node should have replicas; nil if unknown.
func (r *round) namedExtents(ctx context.Context, node string, x api.SweepReplica) (map[uint64]bool, error) {
	if x.Server == "" || strings.ContainsAny(x.Server, "/") {
		r.c.deps.Logger.Warn("log replica without a server", "node", node, "log", x.Log, "extent", x.Seq)
		return nil, nil
	}
	l, _, err := r.c.deps.Logs.Load(ctx, x.Server, x.Log)
	if err != nil {
		return nil, fmt.Errorf("list of log %s of %s: %w", x.Log, x.Server, err)
	}
	named := map[uint64]bool{}
	for _, e := range l.Extents {
		if slices.Contains(e.Replicas, node) {
			named[e.Seq] = true
		}
	}
	return named, nil
}

// end makes each node apply the result of the round. If a node fails, a later round does the rest.
func (r *round) end(ctx context.Context) error {
	for _, n := range r.nodes {
		for n.err == nil {
			var swept api.Swept
			err := r.ask(ctx, func(ctx context.Context) (err error) {
				swept, err = n.peer.EndSweep(ctx, r.Round)
				return err
			})
			r.Warned += swept.Warned
			r.Quarantined += swept.Quarantined
			r.Removed += swept.Removed
			r.Bytes += swept.Bytes
			r.Revived += swept.Revived
			if err != nil {
				if err := r.nodeLost(ctx, n, err); err != nil {
					return err
				}
				break
			}
			if swept.Alarm != "" && !swept.More {
				return r.stop(ctx, n.id, swept.Alarm)
			}
			if !swept.More {
				break
			}
		}
	}
	return nil
}
