package blobfs

import (
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/place"
)

// weakPatience is how long extents of a log may have fewer replicas than they could before the log is
// weak: a node that is back soon need not have all written out. Fewer than logReplicasMin is weak at once.
const weakPatience = 10 * time.Second

// Weak returns the position up to which the log is on fewer nodes than it could be, or on one that is to leave: sealed extents get no new
// replicas, so what lies before should be written elsewhere, and released. Zero if it is as it should be.
func (w *SpreadLogWriter) Weak() int64 { return w.weak.Load() }

// weigh finds out up to where the log is weak. Called with mu held.
func (w *SpreadLogWriter) weigh(now time.Duration) {
	if w.m == nil || now-w.weighed < w.s.cluster.Logs.Retry {
		return
	}
	w.weighed = now
	l, gen := w.m.List()
	if gen == 0 {
		return
	}
	able := slices.DeleteFunc(w.s.logNodes(), func(n place.Node) bool { return n.Leaving })
	want := min(w.s.cluster.Replicas, len(able))
	pos, short, bare := l.Start, int64(0), int64(0)
	for _, x := range l.Extents {
		if x.Length < 0 {
			break // open: the writer turns to one with more replicas by itself
		}
		pos += x.Length
		live := len(nodesOf(able, x.Replicas))
		if x.Length > 0 && (live < want || w.s.anyDrains(x.Replicas)) {
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
	case now-w.shortSince >= weakPatience:
		bare = short
	}
	w.weak.Store(bare)
}
