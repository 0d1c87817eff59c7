package lease

import (
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

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
	// notified is set once it was notified. If it leaves the queue without the lock, it notifies the
	// next one.
	notified bool
	// sess is the session, nil if the lease manager does not know it.
	sess *leaderSession
}

// lockQueues has the queue of waiters of each lock. manager.mu guards it.
type lockQueues map[string][]*lockWait

// notify notifies the first waiter, and if that waits for shared mode, also the shared waiters
// directly after it.
func (q lockQueues) notify(path string) {
	queue := q[path]
	for i, w := range queue {
		if i > 0 && (w.mode != api.Shared || queue[0].mode != api.Shared) {
			return
		}
		w.notified = true
		signal(w.ready)
	}
}

// waitOverhead is the charge for a waiting Acquire beside its path, in bytes.
const waitOverhead = 1 << 10

func waitCharge(path string) int64 { return int64(len(path)) + waitOverhead }

// joinQueue adds an Acquire to the queue. It must be called before the first attempt, so that no
// release is missed. The error is a *api.TooLargeError.
func (lm *manager) joinQueue(c *fsm.Command) (*lockWait, error) {
	w := &lockWait{path: c.Path, mode: c.Mode, session: c.Session, ready: make(chan struct{}, 1)}
	lm.mu.Lock()
	defer lm.mu.Unlock()
	if w.sess = lm.mu.sessions[c.Session]; w.sess != nil {
		if err := lm.mu.ledger.reserve(w.sess, waitCharge(c.Path), c.Quota); err != nil {
			return nil, err
		}
	}
	lm.mu.waits[c.Path] = append(lm.mu.waits[c.Path], w)
	return w, nil
}

func (lm *manager) leaveQueue(w *lockWait, acquired bool) {
	lm.mu.Lock()
	defer lm.mu.Unlock()
	if w.sess != nil {
		lm.mu.ledger.release(w.sess, waitCharge(w.path))
	}
	queue := lm.mu.waits[w.path]
	if i := slices.Index(queue, w); i >= 0 {
		queue = slices.Delete(queue, i, i+1)
	}
	if len(queue) == 0 {
		delete(lm.mu.waits, w.path)
		return
	}
	lm.mu.waits[w.path] = queue
	if acquired {
		// The session may have another Acquire in the queue, sent over a connection that is now
		// dead. It succeeds at once, because the session has the lock.
		for _, other := range queue {
			if other.session == w.session {
				signal(other.ready)
			}
		}
	}
	if w.notified && !acquired {
		lm.mu.waits.notify(w.path)
	}
}

// acquire proposes c, an acquire, until it succeeds or wait has passed.
func (lm *manager) acquire(ctx context.Context, c fsm.Command, wait time.Duration) (fsm.Result, error) {
	if wait <= 0 {
		return lm.propose(ctx, c)
	}
	w, err := lm.joinQueue(&c)
	if err != nil {
		return fsm.Result{}, err
	}
	timer := lm.clock.NewTimer(wait)
	defer timer.Stop()
	done := lm.sessionDone(c.Session)
	for {
		r, err := lm.propose(ctx, c)
		if err != nil || r.Code != fsm.CodeLocked {
			lm.leaveQueue(w, err == nil && r.Code == fsm.CodeDone)
			return r, err
		}
		select {
		case <-w.ready:
			continue
		case <-timer.C:
			err = nil
		case <-done:
			r, err = fsm.Result{Code: fsm.CodeNoSession}, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-lm.ctx.Done():
			err = lm.stoppedError()
		}
		lm.leaveQueue(w, false)
		return r, err
	}
}
