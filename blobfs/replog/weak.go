package replog

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/place"
)

// weakDelay is how long extents of a log may have fewer replicas than possible before Weak
// reports them: a node that returns soon need not cause compactions. Fewer than replicasMin is
// reported at once.
const weakDelay = 10 * time.Second

// weakness is the position up to which a log is under-replicated. Guarded by Writer.mu, except pos.
type weakness struct {
	pos        atomic.Int64
	checked    time.Duration // when it was last updated
	shortSince time.Duration // since when extents are under-replicated; 0: none is
	// lost are replicas that live nodes no longer have.
	lost map[linkKey]bool
}

// lose records that a replica failed because its node does not have it. No node creates it again.
func (x *weakness) lose(k linkKey, err error) {
	if !errors.Is(err, logproto.ErrNoExtent) {
		return
	}
	if x.lost == nil {
		x.lost = map[linkKey]bool{}
	}
	x.lost[k] = true
}

// live returns how many of the nodes have a replica of an extent.
func (x *weakness) live(seq uint64, nodes []place.Node) (n int) {
	for _, node := range nodes {
		if !x.lost[linkKey{seq, node.ID}] {
			n++
		}
	}
	return n
}

// under returns how many sealed extents with data have fewer than want replicas on live nodes.
func (x *weakness) under(l *logproto.List, live []place.Node, want int) (n int) {
	for _, e := range l.Extents {
		if e.Length > 0 && x.live(e.Seq, nodesOf(live, e.Replicas)) < want {
			n++
		}
	}
	return n
}

// Weak returns the position up to which the log is under-replicated or has a replica on a draining
// node. Sealed extents get no new replicas, so the data before it should be written elsewhere and
// released. Zero means that no data is.
func (w *Writer) Weak() int64 { return w.weak.pos.Load() }

// updateWeak updates the position that Weak returns. Called with mu held.
func (w *Writer) updateWeak(now time.Duration) {
	if w.m == nil || now-w.weak.checked < w.logs.cfg.Retry {
		return
	}
	w.weak.checked = now
	l, gen := w.m.List()
	if gen == 0 {
		return
	}
	available := w.logs.live()
	want := min(w.logs.deps.Replicas, len(available))
	pos, short, bare := l.Start, int64(0), int64(0)
	for _, x := range l.Extents {
		if x.Length < 0 {
			break // open: the writer moves to an extent with more replicas
		}
		pos += x.Length
		live := w.weak.live(x.Seq, nodesOf(available, x.Replicas))
		if x.Length > 0 && (live < want || w.logs.deps.Peers.AnyDraining(x.Replicas)) {
			short = pos
		}
		if x.Length > 0 && live < min(replicasMin, want) {
			bare = pos
		}
	}
	switch {
	case short == 0:
		w.weak.shortSince = 0
	case w.weak.shortSince == 0:
		w.weak.shortSince = now
	case now-w.weak.shortSince >= weakDelay:
		bare = short
	}
	w.weak.pos.Store(bare)
}
