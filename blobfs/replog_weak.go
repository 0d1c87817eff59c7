package blobfs

import (
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/place"
)

// weakDelay is how long extents of a log may have fewer replicas than possible before Weak
// reports them: a node that returns soon need not cause compactions. Fewer than logReplicasMin is
// reported at once.
const weakDelay = 10 * time.Second

// Weak returns the position up to which the log is under-replicated or has a replica on a draining
// node. Sealed extents get no new replicas, so the data before it should be written elsewhere and
// released. Zero means that no data is.
func (w *SpreadLogWriter) Weak() int64 { return w.weak.Load() }

// updateWeak updates the position that Weak returns. Called with mu held.
func (w *SpreadLogWriter) updateWeak(now time.Duration) {
	if w.m == nil || now-w.weakChecked < w.s.cluster.Logs.Retry {
		return
	}
	w.weakChecked = now
	l, gen := w.m.List()
	if gen == 0 {
		return
	}
	available := slices.DeleteFunc(w.s.peers.Nodes(), func(n place.Node) bool { return n.Draining })
	want := min(w.s.cluster.Replicas, len(available))
	pos, short, bare := l.Start, int64(0), int64(0)
	for _, x := range l.Extents {
		if x.Length < 0 {
			break // open: the writer moves to an extent with more replicas
		}
		pos += x.Length
		live := len(nodesOf(available, x.Replicas))
		if x.Length > 0 && (live < want || w.s.peers.AnyDraining(x.Replicas)) {
			short = pos
		}
		if x.Length > 0 && live < min(logReplicasMin, want) {
			bare = pos
		}
	}
	switch {
	case short == 0:
		w.shortSince = 0
	case w.shortSince == 0:
		w.shortSince = now
	case now-w.shortSince >= weakDelay:
		bare = short
	}
	w.weak.Store(bare)
}
