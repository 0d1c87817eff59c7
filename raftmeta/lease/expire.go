package lease

import (
	"context"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"
)

const (
	// expirersMax bounds the workers that end sessions and lock-delays, and so the commands in
	// flight for that.
	expirersMax = 8
	// expireHoldsMax bounds the holds of all sessions that one command ends, so that the machine
	// applies it in some 10 ms. A single session may have more.
	expireHoldsMax = 2000
	// expireRetry is the pause after a proposal failed.
	expireRetry = 50 * time.Millisecond
)

// expiryBatch is the work of one command: the sessions or lock-delays that it ends.
type expiryBatch struct {
	command fsm.Command
	// paths are ephemeral files that sessions may cache.
	paths []string
}

// startExpirersLocked starts a worker for each 128 sessions and lock-delays to end.
func (lm *manager) startExpirersLocked() {
	todo := lm.mu.expiry.len()
	for want := min((todo+fsm.BatchMax-1)/fsm.BatchMax, expirersMax); lm.mu.expiry.workers < want && !lm.mu.stopped; {
		lm.mu.expiry.workers++
		lm.workers.Go(lm.expire)
	}
}

// expire ends sessions and lock-delays until none are left.
func (lm *manager) expire() {
	for {
		lm.mu.Lock()
		e, ok := lm.mu.expiry.next(lm.machine)
		if !ok {
			lm.mu.expiry.workers--
			lm.mu.Unlock()
			return
		}
		// A command that waits for caches must not delay other sessions.
		if len(e.paths) > 0 {
			lm.startExpirersLocked()
		}
		lm.mu.Unlock()
		for lm.ctx.Err() == nil {
			r, err := lm.write(lm.ctx, e.command, e.paths...)
			if err == nil && r.Code == fsm.CodeDone {
				break
			}
			pause(lm.ctx, lm.clock)
		}
	}
}

// pause waits for expireRetry, or until ctx ends.
func pause(ctx context.Context, clock Clock) {
	timer := clock.NewTimer(expireRetry)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// expiryQueue has the sessions and lock-delays to end. manager.mu guards it.
type expiryQueue struct {
	// sessions are those whose lease has expired and that no worker has taken. cached are those of
	// them whose ephemeral files may be cached.
	sessions, cached []*leaderSession
	delays           []fsm.DelayRef
	// workers is the number of workers that run.
	workers int
}

// len returns the number of sessions and lock-delays.
func (q *expiryQueue) len() int { return len(q.sessions) + len(q.cached) + len(q.delays) }

// next returns the next command, and removes its sessions or lock-delays from the
// queues. ok is false if there are none. Sessions whose files may be cached come last and in
// separate commands, so that no other session waits for the caches.
func (q *expiryQueue) next(m *fsm.Machine) (e expiryBatch, ok bool) {
	if len(q.delays) > 0 {
		n := min(len(q.delays), fsm.BatchMax)
		e.command = fsm.Command{Op: fsm.OpEndLockDelay, Delays: q.delays[:n:n]}
		q.delays = q.delays[n:]
		return e, true
	}
	e.command.Op = fsm.OpExpireSession
	m.View(func(ns *fsm.Namespace, _ uint64) {
		take := func(from *[]*leaderSession, cached bool) {
			holds := 0
			for len(*from) > 0 && len(e.command.Sessions) < fsm.BatchMax {
				s := (*from)[0]
				st := ns.Session(s.id)
				if st != nil && holds > 0 && holds+st.Holds > expireHoldsMax {
					return
				}
				*from = (*from)[1:]
				if st == nil {
					continue // it was closed
				}
				paths := ns.CachedFiles(s.id)
				if len(paths) > 0 && !cached {
					q.cached = append(q.cached, s)
					continue
				}
				holds += st.Holds
				e.command.Sessions = append(e.command.Sessions, s.id)
				e.paths = append(e.paths, paths...)
			}
		}
		take(&q.sessions, false)
		if len(e.command.Sessions) == 0 {
			take(&q.cached, true)
		}
	})
	return e, len(e.command.Sessions) > 0
}
