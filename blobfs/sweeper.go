package blobfs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
)

// Roots tells which blobs something needs.
type Roots interface {
	// Mark calls mark for each blob that was needed when Mark began and still is, in any order, any number of
	// times. Blobs that come or go meanwhile may be among them. An error means that some may be
	// missing: then nothing is swept.
	Mark(ctx context.Context, mark func(ID)) error
}

// Sweeper finds garbage on all nodes, and has them remove it. There should be one at a time; a second one
// makes the first one's round fail, and does no harm.
type Sweeper struct {
	s     *Store
	roots []Roots
	// missed is since when a node that does not answer has not.
	missed map[string]time.Duration
}

// SweepReport says what a round did.
type SweepReport struct {
	Round   uint64
	Passes  int // over the roots
	Nodes   int // that took part
	Without []string
	Listed  int // extents, and replicas of logs
	Garbage int // of these
	api.Swept
}

// ErrSweepHalted means that something in quarantine was needed, on some node, so that the roots must have missed it:
// there are no more rounds until ResumeSweep.
var ErrSweepHalted = errors.New("the sweep for garbage is halted")

// NewSweeper returns a sweeper. What is named by no root, and nobody uses, is garbage.
func (s *Store) NewSweeper(roots ...Roots) *Sweeper {
	return &Sweeper{s: s, roots: roots, missed: map[string]time.Duration{}}
}

// Run makes a round, and then one each time the period has passed, until ctx ends.
func (w *Sweeper) Run(ctx context.Context) {
	for {
		r, err := w.Round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.s.log.Error("garbage is not swept", "round", r.Round, "err", err)
		default:
			w.s.log.Info("garbage swept", "round", r.Round, "nodes", r.Nodes, "without", r.Without, "listed", r.Listed, "garbage", r.Garbage,
				"quarantined", r.Quarantined, "removed", r.Removed, "bytes", r.Bytes)
		}
		if !w.s.pause(ctx, w.s.cluster.Sweep.Every) {
			return
		}
	}
}

// sweepRound is one round.
type sweepRound struct {
	w *Sweeper
	s *Store
	SweepReport
	nodes []*sweptNode
}

// sweptNode is a node in a round.
type sweptNode struct {
	id   string
	peer api.Peer
	// err is why nothing more of it is judged. What it uses counts nevertheless.
	err error
}

// Round makes one round. ErrSweepHalted; api.ErrStaleRound if another sweeper is at it; api.ErrUnreachable with the
// nodes that do not answer, unless they are away for long; the errors of the roots and of the lists. After an error nothing of
// the round is done, on nodes that were not told that it has ended.
func (w *Sweeper) Round(ctx context.Context) (SweepReport, error) {
	r := &sweepRound{w: w, s: w.s}
	err := r.run(ctx)
	if err != nil {
		err = fmt.Errorf("sweep round %d: %w", r.Round, err)
	}
	if ctx.Err() == nil {
		w.s.swept.note(r.SweepReport, err)
	}
	return r.SweepReport, err
}

func (r *sweepRound) run(ctx context.Context) error {
	var err error
	if r.Round, err = r.s.nextRound(ctx); err != nil {
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

// ask calls a node with the time that it has to answer.
func (r *sweepRound) ask(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, r.s.cluster.SealTimeout)
	defer cancel()
	return call(ctx)
}

// begin begins the round on all nodes: what comes to be after it is not judged. What they use is asked for
// after it, and what the roots name after that. A node that is away is done without only if it is away
// for long.
func (r *sweepRound) begin(ctx context.Context) error {
	now := r.s.cluster.Clock.Now()
	var missing []string
	for _, b := range r.beginAll(ctx) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(b.err, api.ErrStaleRound):
			return fmt.Errorf("%s: %w", b.id, b.err)
		case b.err != nil:
			if _, known := r.w.missed[b.id]; !known {
				r.w.missed[b.id] = now
			}
			if now-r.w.missed[b.id] < r.s.cluster.Sweep.Away {
				missing = append(missing, fmt.Sprintf("%s: %v", b.id, b.err))
			}
			r.Without = append(r.Without, b.id)
			continue
		case b.alarm != "":
			return r.halt(ctx, b.id, b.alarm)
		}
		delete(r.w.missed, b.id)
		r.nodes = append(r.nodes, b.sweptNode)
	}
	r.Nodes = len(r.nodes)
	if len(missing) > 0 {
		return fmt.Errorf("%w: nobody knows what is in use there: %s", api.ErrUnreachable, strings.Join(missing, "; "))
	}
	return nil
}

// begunNode is what a node says when a round begins.
type begunNode struct {
	*sweptNode
	alarm string
}

// beginAll tells all nodes that the round begins.
func (r *sweepRound) beginAll(ctx context.Context) []begunNode {
	var all []begunNode
	for _, id := range r.s.allNodes() {
		all = append(all, begunNode{sweptNode: &sweptNode{id: id}})
	}
	ctx, cancel := context.WithTimeout(ctx, r.s.cluster.ReplyTimeout)
	defer cancel()
	var group sync.WaitGroup
	places := make(chan struct{}, eachMax)
	for i := range all {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			b := &all[i]
			if b.peer, b.err = r.s.anyPeer(ctx, b.id); b.err == nil {
				b.alarm, b.err = b.peer.BeginSweep(ctx, r.Round)
			}
		})
	}
	group.Wait()
	return all
}

// mark finds out what is needed, of as many blobs as fit into memory.
func (r *sweepRound) mark(ctx context.Context, from uint64) (*marks, error) {
	r.Passes++
	m := newMarks(from, r.s.cluster.Sweep.Marks)
	for _, n := range r.nodes {
		if err := r.pins(ctx, n, m); err != nil {
			return nil, fmt.Errorf("what %s uses: %w", n.id, err)
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

// pins marks what a node uses.
func (r *sweepRound) pins(ctx context.Context, n *sweptNode, m *marks) error {
	for after := (ID{}); ; {
		var page []ID
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

// lost notes that a node takes no further part. Only a later round, or the end of ctx, ends this one.
func (r *sweepRound) lost(ctx context.Context, n *sweptNode, err error) error {
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

// extents judges the extents of a node that are in the range of the marks.
func (r *sweepRound) extents(ctx context.Context, n *sweptNode, m *marks) error {
	for n.err == nil {
		var page, garbage []ExtentID
		alarm := ""
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			if page, err = n.peer.SweepExtents(ctx, r.Round, api.SweepMax); err != nil {
				return err
			}
			beyond := slices.IndexFunc(page, func(x ExtentID) bool { return !m.covers(x.Blob) })
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
			return r.lost(ctx, n, err)
		}
		if alarm != "" {
			return r.halt(ctx, n.id, alarm)
		}
		r.Listed += len(page)
		r.Garbage += len(garbage)
		if len(page) == 0 {
			return nil
		}
	}
	return nil
}

// replicas judges a node's replicas of logs: those are needed which the log's list names.
func (r *sweepRound) replicas(ctx context.Context, n *sweptNode) error {
	for n.err == nil {
		var page []api.SweepReplica
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			page, err = n.peer.SweepReplicas(ctx, r.Round, api.SweepMax)
			return err
		})
		if err != nil {
			return r.lost(ctx, n, err)
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
			return r.lost(ctx, n, err)
		}
		if alarm != "" {
			return r.halt(ctx, n.id, alarm)
		}
		r.Listed += len(page)
		r.Garbage += len(garbage)
	}
	return nil
}

// unlisted returns which of a node's replicas no list names.
func (r *sweepRound) unlisted(ctx context.Context, node string, page []api.SweepReplica) (garbage []api.ReplicaKey, err error) {
	var named map[uint64]bool // extents of the log that the last replica was of
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

// namedExtents returns of which extents of a log a node should have replicas; nil if that cannot be told.
func (r *sweepRound) namedExtents(ctx context.Context, node string, x api.SweepReplica) (map[uint64]bool, error) {
	if x.Server == "" || strings.ContainsAny(x.Server, "/") {
		r.s.log.Warn("replica of a log does not say of which server", "node", node, "log", x.Log, "extent", x.Seq)
		return nil, nil
	}
	l, _, err := r.s.loadLogList(ctx, logPath(x.Server, x.Log))
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

// end has each node do what is due. A node that fails at it does the rest in a later round.
func (r *sweepRound) end(ctx context.Context) error {
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
				if err := r.lost(ctx, n, err); err != nil {
					return err
				}
				break
			}
			if swept.Alarm != "" && !swept.More {
				return r.halt(ctx, n.id, swept.Alarm)
			}
			if !swept.More {
				break
			}
		}
	}
	return nil
}
