package session

import (
	"context"
	"sync"
	"time"
)

// A server that is cut off, or whose process stands still, does not answer and does
// not close its connections either. Sessions notice, since their KeepAlives are not
// answered. These bounds are for calls without a session: a server that has answered
// none of them for answerTime is asked something that any living server answers at
// once, and is taken for dead if it does not within probeTime. Together they are the
// time that a link may take for the largest file.
const (
	answerTime = time.Second
	probeTime  = 2 * time.Second
)

// vigil is what is known of the calls that a server has not answered.
type vigil struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		calls int
		// heard is when a call was answered, or made while there was no other.
		heard   time.Time
		watched bool // a goroutine looks after them
	}
}

// begin notes that a call is made, and has the server watched.
func (l *leaders) begin(p *peer) {
	v := &p.calls
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.calls == 0 {
		v.mu.heard = time.Now()
	}
	v.mu.calls++
	if v.mu.watched {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.closed {
		v.mu.watched = true
		l.wg.Go(func() { l.watch(p) })
	}
}

// over notes that a call has ended, and whether that was the server's doing.
func (p *peer) over(answered bool) {
	v := &p.calls
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.calls--
	if answered {
		v.mu.heard = time.Now()
	}
}

// watch asks a silent server whether it lives, and gives it up if it says nothing: its
// calls end, those that may have been made with an unknown outcome, and others are
// asked from then on. It stays a moment after the last call, for the next.
func (l *leaders) watch(p *peer) {
	v := &p.calls
	for wait := answerTime; sleep(l.ctx, wait); {
		v.mu.Lock()
		if v.mu.calls == 0 {
			v.mu.watched = false
			v.mu.Unlock()
			return
		}
		wait = answerTime - time.Since(v.mu.heard)
		v.mu.Unlock()
		if wait > 0 {
			continue
		}
		if !l.lives(p) {
			l.cfg.Logger.Debug("a server of the lock service is silent; others are asked", "address", p.addr)
			l.suspect(p, 0)
			v.mu.Lock()
			v.mu.watched = false
			v.mu.Unlock()
			return
		}
		wait = answerTime
	}
}

// lives tells whether a server answers at all. What it answers does not matter.
func (l *leaders) lives(p *peer) bool {
	ctx, cancel := context.WithTimeout(l.ctx, probeTime)
	defer cancel()
	_, err := p.Service.GetStale(ctx, "/")
	return err == nil || ctx.Err() == nil || l.ctx.Err() != nil
}
