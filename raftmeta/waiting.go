package raftmeta

import (
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// lockWait is an Acquire that waits for a lock. The waiters for a lock form a queue, but other
// sessions may acquire a free lock without joining it.
type lockWait struct {
	path    string
	mode    api.Mode
	session api.SessionID
	// ready receives when the Acquire should try again. Its capacity is one.
	ready chan struct{}
	// woken is set once it was notified. If it leaves the queue without the lock, it notifies the
	// next one.
	woken bool
	// of is the session, nil if the lease manager does not know it.
	of *served
}

// freedLocked notifies the first waiter, and if that waits for shared mode, also the shared waiters
// directly after it.
func (k *keeper) freedLocked(path string) {
	line := k.mu.waits[path]
	for i, w := range line {
		if i > 0 && (w.mode != api.Shared || line[0].mode != api.Shared) {
			return
		}
		w.woken = true
		kick(w.ready)
	}
}

// waitOverhead is the charge for a waiting Acquire beside its path, in bytes.
const waitOverhead = 1 << 10

func waitCharge(path string) int64 { return int64(len(path)) + waitOverhead }

// standInLine adds an Acquire to the queue. It must be called before the first attempt, so that no
// release is missed. The error is a *TooLargeError.
func (k *keeper) standInLine(c *command) (*lockWait, error) {
	w := &lockWait{path: c.path, mode: c.mode, session: c.session, ready: make(chan struct{}, 1)}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.of = k.mu.sessions[c.session]; w.of != nil {
		if err := k.takeLocked(w.of, waitCharge(c.path), c.share); err != nil {
			return nil, err
		}
	}
	k.mu.waits[c.path] = append(k.mu.waits[c.path], w)
	return w, nil
}

func (k *keeper) leaveLine(w *lockWait, acquired bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w.of != nil {
		k.freeLocked(w.of, waitCharge(w.path))
	}
	line := k.mu.waits[w.path]
	if i := slices.Index(line, w); i >= 0 {
		line = slices.Delete(line, i, i+1)
	}
	if len(line) == 0 {
		delete(k.mu.waits, w.path)
		return
	}
	k.mu.waits[w.path] = line
	if acquired {
		// The session may have another Acquire in the queue, sent over a connection that is now
		// dead. It succeeds at once, because the session has the lock.
		for _, other := range line {
			if other.session == w.session {
				kick(other.ready)
			}
		}
	}
	if w.woken && !acquired {
		k.freedLocked(w.path)
	}
}

// acquire proposes c, an acquire, until it succeeds or wait has passed.
func (k *keeper) acquire(ctx context.Context, c command, wait time.Duration) (result, error) {
	if wait <= 0 {
		return k.propose(ctx, c)
	}
	w, err := k.standInLine(&c)
	if err != nil {
		return result{}, err
	}
	timer := k.clock.NewTimer(wait)
	defer timer.Stop()
	gone := k.gone(c.session)
	for {
		r, err := k.propose(ctx, c)
		if err != nil || r.code != codeLocked {
			k.leaveLine(w, err == nil && r.code == codeDone)
			return r, err
		}
		select {
		case <-w.ready:
			continue
		case <-timer.C:
			err = nil
		case <-gone:
			r, err = result{code: codeNoSession}, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-k.ctx.Done():
			err = k.refusal()
		}
		k.leaveLine(w, false)
		return r, err
	}
}
