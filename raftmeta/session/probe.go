package session

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/internal/timing"
)

// A server that is partitioned or suspended does not answer, and does not close its connections
// either. Sessions detect that by their KeepAlives. These limits are for calls without a session. A
// server that has answered none of them for answerTime is probed with a call that any running
// server answers at once. It counts as dead if it does not answer within probeTime. The sum is the
// time that a link may take for the largest file.
const (
	answerTime = time.Second
	probeTime  = 2 * time.Second
)

// callTracker tracks the unanswered calls to a server.
type callTracker struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		calls int
		// lastAnswer is when a call was last answered, or was sent while there was no other.
		lastAnswer time.Time
		monitored  bool // a goroutine monitors the calls
	}
}

// callBegan records the start of a call, and starts monitoring the server.
func (l *leaders) callBegan(p *peer) {
	v := &p.calls
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.calls == 0 {
		v.mu.lastAnswer = time.Now()
	}
	v.mu.calls++
	if v.mu.monitored {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.closed {
		v.mu.monitored = true
		l.wg.Go(func() { l.monitor(p) })
	}
}

// callEnded records the end of a call. answered is set if the server answered it.
func (p *peer) callEnded(answered bool) {
	v := &p.calls
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.calls--
	if answered {
		v.mu.lastAnswer = time.Now()
	}
}

// monitor probes a server that does not answer, and abandons it if the probe is not answered either.
// Its calls end, changes among them with an unknown outcome, and new calls go to other servers.
// monitor continues for a moment after the last call, to monitor the next one.
func (l *leaders) monitor(p *peer) {
	v := &p.calls
	for wait := answerTime; timing.Sleep(l.ctx, wait) == nil; {
		v.mu.Lock()
		if v.mu.calls == 0 {
			v.mu.monitored = false
			v.mu.Unlock()
			return
		}
		wait = answerTime - time.Since(v.mu.lastAnswer)
		v.mu.Unlock()
		if wait > 0 {
			continue
		}
		if !l.responds(p) {
			l.cfg.Logger.Debug("lock service server does not answer, trying others", "addr", p.addr)
			l.suspect(p, 0)
			v.mu.Lock()
			v.mu.monitored = false
			v.mu.Unlock()
			return
		}
		wait = answerTime
	}
}

// responds reports whether a server answers at all, with any answer.
func (l *leaders) responds(p *peer) bool {
	ctx, cancel := context.WithTimeout(l.ctx, probeTime)
	defer cancel()
	_, err := p.Service.GetStale(ctx, "/")
	return err == nil || ctx.Err() == nil || l.ctx.Err() != nil
}
