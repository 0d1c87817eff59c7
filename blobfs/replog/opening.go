package replog

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

// openings are the replicas that are being opened. Guarded by Writer.mu.
type openings map[linkKey]*openingReplica

// stuck reports whether an abandoned open on a node has not returned.
func (o openings) stuck(node string) bool {
	for k, x := range o {
		if k.node == node && x.abandoned {
			return true
		}
	}
	return false
}

// open opens a replica and reports the result to the state machine.
func (w *Writer) open(e logproto.Effect, salt uint64, reserve bool) {
	ctx, cancel := context.WithTimeout(w.ctx, w.logs.cfg.OpenTimeout)
	defer cancel()
	o := local.LogOpen{Log: w.id, Server: w.server, Seq: e.Seq, Epoch: e.Epoch, Salt: salt, HighPriority: w.placement.highPriority || reserve}
	var p api.Logs
	var space int64
	var err error
	if e.Node == w.logs.self {
		p, space, err = w.openLocal(ctx, o)
	} else {
		p, space, err = w.openRemote(ctx, e.Node, o)
	}
	if err == nil && space < w.frameMax() {
		err = fmt.Errorf("extents of %d bytes are smaller than a frame", space)
	}
	w.eventAsync(func() {
		if err == nil && (w.ctx.Err() != nil || !w.m.Opening(e.Seq)) {
			w.logs.deps.Work.Go(func() { w.logs.dropReplica(w.id, e.Seq, e.Node) })
			return
		}
		if err != nil {
			w.placement.notOpened(e.Seq, e.Node, err)
			w.failed(e.Seq, e.Node, err)
			return
		}
		w.placement.fail(nil)
		l := newLink(w, e.Seq, e.Node, e.Epoch, salt, p)
		w.links[linkKey{e.Seq, e.Node}] = l
		w.stats.Extents++
		w.m.Opened(e.Seq, e.Node, space)
	})
}

func (w *Writer) openRemote(ctx context.Context, node string, o local.LogOpen) (p api.Logs, space int64, err error) {
	if p, err = w.logs.deps.Peers.Any(ctx, node); err == nil {
		space, err = p.OpenLog(ctx, o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.opening, linkKey{o.Seq, node})
	return p, space, err
}

// openLocal opens a replica on the local disk, which may stall without a deadline. After a timeout
// the call is abandoned and the replica counts as opening until the call returns.
func (w *Writer) openLocal(ctx context.Context, o local.LogOpen) (api.Logs, int64, error) {
	type opened struct {
		space int64
		err   error
	}
	p, k := w.logs.replicas, linkKey{o.Seq, w.logs.self}
	done := make(chan opened, 1)
	expired := false // abandoned by the caller; guarded by mu
	if !w.logs.deps.Work.Go(func() {
		space, err := p.OpenLog(ctx, o)
		w.mu.Lock()
		delete(w.opening, k)
		if !expired {
			done <- opened{space, err}
		}
		w.mu.Unlock()
		if expired && err == nil {
			w.logs.dropReplica(w.id, o.Seq, w.logs.self)
		}
	}) {
		return nil, 0, local.ErrClosed
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
