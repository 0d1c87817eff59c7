package blobfs

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// openingReplica is a replica that is being opened.
type openingReplica struct {
	since     time.Duration
	abandoned bool // the writer continues without it
}

// open opens a replica and reports the result to the state machine.
func (w *SpreadLogWriter) open(e logproto.Effect, salt uint64, reserve bool) {
	ctx, cancel := context.WithTimeout(w.ctx, w.s.cluster.Logs.OpenTimeout)
	defer cancel()
	o := local.LogOpen{Log: w.id, Server: w.server, Seq: e.Seq, Epoch: e.Epoch, Salt: salt, HighPriority: w.highPriority || reserve}
	var p api.Logs
	var space int64
	var err error
	if e.Node == w.s.self {
		p, space, err = w.openLocal(ctx, o)
	} else {
		p, space, err = w.openRemote(ctx, e.Node, o)
	}
	if err == nil && space < w.frameMax() {
		err = fmt.Errorf("extents of %d bytes are smaller than a frame", space)
	}
	w.eventAsync(func() {
		if err == nil && (w.ctx.Err() != nil || !w.m.Opening(e.Seq)) {
			w.s.work.Go(func() { w.s.dropReplica(w.id, e.Seq, e.Node) })
			return
		}
		if err != nil {
			if w.placeErr = err; e.Node == w.s.self {
				w.excluded[e.Node] = exclusion{until: w.s.cluster.Clock.Now() + w.s.cluster.Logs.Retry, full: w.refusedFull(e.Seq, err)}
			}
			w.failed(e.Seq, e.Node, err)
			return
		}
		w.placeErr = nil
		l := newLogLink(w, e.Seq, e.Node, e.Epoch, salt, p)
		w.links[linkKey{e.Seq, e.Node}] = l
		w.stats.Extents++
		w.m.Opened(e.Seq, e.Node, space)
	})
}

func (w *SpreadLogWriter) openRemote(ctx context.Context, node string, o local.LogOpen) (p api.Logs, space int64, err error) {
	if p, err = w.s.peers.Any(ctx, node); err == nil {
		space, err = p.OpenLog(ctx, o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.opening, linkKey{o.Seq, node})
	return p, space, err
}

// openLocal opens a replica on the local disk, which may stall without a deadline. After a timeout
// the call is abandoned and the replica counts as opening until the call returns.
func (w *SpreadLogWriter) openLocal(ctx context.Context, o local.LogOpen) (api.Logs, int64, error) {
	type opened struct {
		space int64
		err   error
	}
	p, k := w.s.Peer(), linkKey{o.Seq, w.s.self}
	done := make(chan opened, 1)
	expired := false // abandoned by the caller; guarded by mu
	if !w.s.work.Go(func() {
		space, err := p.OpenLog(ctx, o)
		w.mu.Lock()
		delete(w.opening, k)
		if !expired {
			done <- opened{space, err}
		}
		w.mu.Unlock()
		if expired && err == nil {
			w.s.dropReplica(w.id, o.Seq, w.s.self)
		}
	}) {
		return nil, 0, ErrClosed
	}
	select {
	case r := <-done:
		return p, r.space, r.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case r := <-done:
		return p, r.space, r.err
	default:
	}
	expired = true
	w.opening[k].abandoned = true
	return nil, 0, fmt.Errorf("open local replica: %w", ctx.Err())
}

// localOpenStuck reports whether an abandoned open on the local disk has not returned. Called with mu
// held.
func (w *SpreadLogWriter) localOpenStuck() bool {
	for k, o := range w.opening {
		if k.node == w.s.self && o.abandoned {
			return true
		}
	}
	return false
}

// trialDeadlines is how long a node that was slow recently may take to open a replica, as a
// multiple of the append deadline. It takes longer only if the node has no spare extent ready or is
// still slow.
const trialDeadlines = 4

// checkOpening drops replicas that are not opened in time, if another replica of the extent is
// open and enough nodes are left: a late standby would hold up appends when the current extent is
// full. Called with mu held.
func (w *SpreadLogWriter) checkOpening(now time.Duration) {
	for k, o := range w.opening {
		if o.abandoned || !w.m.Opening(k.seq) || !w.otherReplicaOpen(k) || !w.enoughWithout(k.node, now) {
			continue
		}
		deadline := w.s.cluster.Logs.OpenTimeout
		switch {
		case w.onTrial(k.node, now):
			deadline = trialDeadlines * w.timer.deadline()
		case w.m.Waiting():
			deadline = w.s.cluster.Logs.DeadlineMax
		}
		if now-o.since < deadline {
			continue
		}
		w.s.log.Warn("log replica not opened in time", "log", w.id, "extent", k.seq, "node", k.node, "took", now-o.since)
		o.abandoned = true
		w.dropSlow(k, now)
	}
}

// otherReplicaOpen reports whether another replica of the extent is open. Called with mu held.
func (w *SpreadLogWriter) otherReplicaOpen(k linkKey) bool {
	for other := range w.links {
		if other.seq == k.seq && other.node != k.node {
			return true
		}
	}
	return false
}

// enoughWithout reports whether there are enough responsive nodes without node. Called with mu
// held.
func (w *SpreadLogWriter) enoughWithout(node string, now time.Duration) bool {
	responsive := w.responsive(now, w.highPriority)
	return len(responsive)-len(nodesOf(responsive, []string{node})) >= w.replicasMin()
}
