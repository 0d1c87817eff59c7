package blobfs

import "time"

// slowness is of a node that was slow: it gets no replicas if there are others.
type slowness struct {
	until time.Duration
	long  time.Duration // how long that is
}

// slowTimes is how many times LogConfig.Avoid a node is left out that is slow each time: it costs a standby to find out.
const slowTimes = 8

// slowed goes on without a replica, and leaves its node out for a time: twice as long as the last time if
// that was not long ago. Called with mu held.
func (w *SpreadLogWriter) slowed(k linkKey, now time.Duration) {
	avoid := w.s.cluster.Logs.Avoid
	if w.s.peers.suspected(k.node) {
		w.avoid[k.node] = avoidance{until: now + avoid, unreached: true} // it is not there, which is another thing
	} else {
		s := w.slow[k.node]
		if !w.onTrial(k.node, now) {
			s.long = 0
		}
		s.long = min(max(2*s.long, avoid), slowTimes*avoid)
		s.until = now + s.long
		w.slow[k.node] = s
	}
	w.stats.Slow++
	w.m.Failed(k.seq, k.node, 0)
}

// onTrial tells whether a node was slow not long ago. Called with mu held.
func (w *SpreadLogWriter) onTrial(node string, now time.Duration) bool {
	s := w.slow[node]
	return s.long > 0 && now-s.until < 2*s.long
}
