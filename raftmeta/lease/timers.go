package lease

import (
	"container/heap"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"
)

// deadline is a time at which the lease manager must act on a session, or end a lock-delay.
type deadline struct {
	at      time.Duration
	session *leaderSession // nil: this is the end of delay
	delay   fsm.DelayRef
	pos     int // in timers.due, -1 if absent
}

// deadlines is a heap with the earliest deadline first.
type deadlines []*deadline

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].at < h[j].at }
func (h deadlines) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *deadlines) Push(x any)        { d := x.(*deadline); d.pos = len(*h); *h = append(*h, d) }
func (h *deadlines) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last], *h, d.pos = nil, (*h)[:last], -1
	return d
}

// timers has the deadlines of a lease manager. manager.mu guards it.
type timers struct {
	due deadlines
	// delays are the lock-delays being timed, at most one per lock.
	delays map[string]*deadline
	// wake receives when the earliest deadline has changed.
	wake chan<- struct{}
}

// at sets the time of a deadline.
func (t *timers) at(d *deadline, at time.Duration) {
	if d.pos >= 0 && d.at == at {
		return
	}
	d.at = at
	if d.pos < 0 {
		heap.Push(&t.due, d)
	} else {
		heap.Fix(&t.due, d.pos)
	}
	if d.pos == 0 {
		signal(t.wake)
	}
}

// stop removes a deadline.
func (t *timers) stop(d *deadline) {
	if d.pos >= 0 {
		heap.Remove(&t.due, d.pos)
	}
}

// schedule sets the deadline of a session.
func (t *timers) schedule(s *leaderSession) {
	at := s.expiry()
	if s.pending != nil && !s.answerDue {
		at = min(at, s.pending.answerBy)
	}
	t.at(&s.deadline, at)
}

// startDelay starts the timer of a lock-delay, and replaces that of the same lock: one command may
// end two sessions that shared the lock, with different delays.
func (t *timers) startDelay(now time.Duration, of fsm.DelayRef, length time.Duration) {
	d := t.delays[of.Path]
	if d == nil {
		d = &deadline{pos: -1}
		t.delays[of.Path] = d
	}
	d.delay = of
	t.at(d, now+length)
}
