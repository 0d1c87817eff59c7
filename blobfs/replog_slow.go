package blobfs

import "time"

// slowNode is the state of a node that was slow: it gets no replicas if there are enough others.
type slowNode struct {
	until time.Duration
	long  time.Duration // duration of the current exclusion
}

// slowRatioMax bounds the exclusion of a node that is slow repeatedly, as a multiple of
// LogConfig.Avoid: each new trial costs a standby.
const slowRatioMax = 8

// dropSlow drops a replica and excludes its node for a time, twice as long as the last time if that
// was recent. Called with mu held.
func (w *SpreadLogWriter) dropSlow(k linkKey, now time.Duration) {
	avoid := w.s.cluster.Logs.Avoid
	if w.s.peers.Suspected(k.node) {
		w.excluded[k.node] = exclusion{until: now + avoid, unreached: true} // down rather than slow
	} else {
		s := w.slowNodes[k.node]
		if !w.onTrial(k.node, now) {
			s.long = 0
		}
		s.long = min(max(2*s.long, avoid), slowRatioMax*avoid)
		s.until = now + s.long
		w.slowNodes[k.node] = s
	}
	w.stats.Slow++
	w.m.Failed(k.seq, k.node, 0)
}

// onTrial reports whether a node was slow recently. Called with mu held.
func (w *SpreadLogWriter) onTrial(node string, now time.Duration) bool {
	s := w.slowNodes[node]
	return s.long > 0 && now-s.until < 2*s.long
}
