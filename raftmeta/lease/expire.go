package lease

import (
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
	todo := len(lm.mu.expired) + len(lm.mu.expiredCached) + len(lm.mu.delaysOver)
	for want := min((todo+fsm.BatchMax-1)/fsm.BatchMax, expirersMax); lm.mu.expirers < want && !lm.mu.stopped; {
		lm.mu.expirers++
		lm.workers.Go(lm.expire)
	}
}

// expire ends sessions and lock-delays until none are left.
func (lm *manager) expire() {
	for {
		lm.mu.Lock()
		e, ok := lm.nextExpiryLocked()
		if !ok {
			lm.mu.expirers--
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
			lm.pause()
		}
	}
}

// pause waits for expireRetry, or until the lease manager stops.
func (lm *manager) pause() {
	timer := lm.clock.NewTimer(expireRetry)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lm.ctx.Done():
	}
}

// nextExpiryLocked returns the next command, and removes its sessions or lock-delays from the
// queues. ok is false if there are none. Sessions whose files may be cached come last and in
// separate commands, so that no other session waits for the caches.
func (lm *manager) nextExpiryLocked() (e expiryBatch, ok bool) {
	if len(lm.mu.delaysOver) > 0 {
		n := min(len(lm.mu.delaysOver), fsm.BatchMax)
		e.command = fsm.Command{Op: fsm.OpEndLockDelay, Delays: lm.mu.delaysOver[:n:n]}
		lm.mu.delaysOver = lm.mu.delaysOver[n:]
		return e, true
	}
	e.command.Op = fsm.OpExpireSession
	lm.machine.View(func(ns *fsm.Namespace, _ uint64) {
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
					lm.mu.expiredCached = append(lm.mu.expiredCached, s)
					continue
				}
				holds += st.Holds
				e.command.Sessions = append(e.command.Sessions, s.id)
				e.paths = append(e.paths, paths...)
			}
		}
		take(&lm.mu.expired, false)
		if len(e.command.Sessions) == 0 {
			take(&lm.mu.expiredCached, true)
		}
	})
	return e, len(e.command.Sessions) > 0
}
