package raftmeta

import "time"

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

// ending is the work of one command: the sessions or lock-delays that it ends.
type ending struct {
	command command
	// paths are ephemeral files that sessions may cache.
	paths []string
}

// expirersLocked starts a worker for each 128 sessions and lock-delays to end.
func (k *keeper) expirersLocked() {
	todo := len(k.mu.dying) + len(k.mu.dyingCached) + len(k.mu.delaysOver)
	for want := min((todo+batchMax-1)/batchMax, expirersMax); k.mu.expirers < want && !k.mu.dropped; {
		k.mu.expirers++
		k.workers.Go(k.expire)
	}
}

// expire ends sessions and lock-delays until none are left.
func (k *keeper) expire() {
	for {
		k.mu.Lock()
		e, ok := k.nextEndingLocked()
		if !ok {
			k.mu.expirers--
			k.mu.Unlock()
			return
		}
		// A command that waits for caches must not delay other sessions.
		if len(e.paths) > 0 {
			k.expirersLocked()
		}
		k.mu.Unlock()
		for k.ctx.Err() == nil {
			r, err := k.write(k.ctx, e.command, e.paths...)
			if err == nil && r.code == codeDone {
				break
			}
			k.pause()
		}
	}
}

// pause waits for expireRetry, or until the lease manager stops.
func (k *keeper) pause() {
	timer := k.clock.NewTimer(expireRetry)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.ctx.Done():
	}
}

// nextEndingLocked returns the next command, and removes its sessions or lock-delays from the
// queues. ok is false if there are none. Sessions whose files may be cached come last and in
// separate commands, so that no other session waits for the caches.
func (k *keeper) nextEndingLocked() (e ending, ok bool) {
	if len(k.mu.delaysOver) > 0 {
		n := min(len(k.mu.delaysOver), batchMax)
		e.command = command{op: opEndLockDelay, delays: k.mu.delaysOver[:n:n]}
		k.mu.delaysOver = k.mu.delaysOver[n:]
		return e, true
	}
	e.command.op = opExpireSession
	k.machine.view(func(ns *namespace, _ uint64) {
		take := func(from *[]*served, cached bool) {
			holds := 0
			for len(*from) > 0 && len(e.command.sessions) < batchMax {
				s := (*from)[0]
				st := ns.session(s.id)
				if st != nil && holds > 0 && holds+st.holds > expireHoldsMax {
					return
				}
				*from = (*from)[1:]
				if st == nil {
					continue // it was closed
				}
				paths := cachedFilesOf(ns, s.id)
				if len(paths) > 0 && !cached {
					k.mu.dyingCached = append(k.mu.dyingCached, s)
					continue
				}
				holds += st.holds
				e.command.sessions = append(e.command.sessions, s.id)
				e.paths = append(e.paths, paths...)
			}
		}
		take(&k.mu.dying, false)
		if len(e.command.sessions) == 0 {
			take(&k.mu.dyingCached, true)
		}
	})
	return e, len(e.command.sessions) > 0
}
