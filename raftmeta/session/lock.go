package session

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// waitMax bounds the wait of one Acquire at the leader; the call is then repeated. This bounds the
// delay if the leader has lost the request, or the server no longer leads.
const waitMax = 30 * time.Second

// Lock is a lock acquired by a session.
type Lock struct {
	s     *Session
	path  string
	mode  api.Mode
	delay time.Duration
	grant api.Grant // set before the Lock is returned

	ended atomic.Bool   // released, failed to acquire, or lost with the session
	done  chan struct{} // closed when ended is set
	free  chan struct{} // closed when another Lock of the path may be acquired
}

// LockOptions are the options of Acquire.
type LockOptions struct {
	// Try makes Acquire return a *api.LockedError immediately instead of waiting.
	Try bool
	// Delay is the lock-delay: how long other sessions cannot acquire the lock after this session
	// expired, at most api.LockDelayMax. Operations that were started under the lock have that time
	// to complete.
	Delay time.Duration
}

// Acquire acquires the lock of the node at path, and creates an empty file if there is no node. It
// waits until ctx ends. The error is then *api.LockedError and ctx's, if the lock was found held.
// Other errors are *api.PathError, api.ErrEphemeral for an ephemeral file, ErrExpired,
// api.ErrClosed, api.ErrNotReady, and immediately a *api.LockedError if this session already holds
// or acquires a lock of the path.
func (s *Session) Acquire(ctx context.Context, path string, mode api.Mode, o LockOptions) (*Lock, error) {
	l := &Lock{s: s, path: path, mode: mode, delay: min(max(o.Delay, 0), api.LockDelayMax), done: make(chan struct{}), free: make(chan struct{})}
	if err := s.reserve(ctx, l); err != nil {
		return nil, err
	}
	var locked error // the last *api.LockedError
	for {
		wait := waitMax
		if at, ok := ctx.Deadline(); ok {
			// The answer should arrive before ctx ends.
			wait = min(wait, max(time.Until(at)-50*time.Millisecond, 0))
		}
		if o.Try {
			wait = 0
		}
		unknown, err := s.do(ctx, true, func(ctx context.Context, service api.Service) (err error) {
			l.grant, err = service.Acquire(ctx, s.id, path, mode, wait, l.delay)
			return err
		})
		if err == nil {
			return s.acquired(l)
		}
		isLocked := errors.Is(err, api.ErrLocked)
		if isLocked {
			locked = err
		}
		if isLocked && !o.Try && timing.Sleep(ctx, 25*time.Millisecond) == nil && s.Err() == nil {
			continue
		}
		s.abandonAcquire(l, unknown)
		if ctx.Err() != nil && locked != nil {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), locked)
		}
		return nil, err
	}
}

// reserve registers l as the session's only Lock of its path, after an earlier one has been
// released at the leader.
func (s *Session) reserve(ctx context.Context, l *Lock) error {
	for {
		s.mu.Lock()
		other := s.mu.locks[l.path]
		err := s.mu.err
		if err == nil && other == nil {
			s.mu.locks[l.path] = l
		}
		s.mu.Unlock()
		switch {
		case err != nil || other == nil:
			return err
		case !other.ended.Load():
			return &api.LockedError{Path: l.path, Mode: other.mode, Holder: s.id, HolderName: s.opts.Name}
		}
		select {
		case <-other.free:
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// acquired returns a lock that the leader has granted, unless the session has ended.
func (s *Session) acquired(l *Lock) (*Lock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return nil, s.mu.err
	}
	return l, nil
}

// abandonAcquire ends an Acquire that failed. If the leader may have granted the lock, a goroutine acquires
// it once more and releases it.
func (s *Session) abandonAcquire(l *Lock, outcomeUnknown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.endLocked()
	if !outcomeUnknown || s.mu.err != nil {
		s.forgetLocked(l)
		return
	}
	s.wg.Go(func() {
		defer func() {
			s.mu.Lock()
			s.forgetLocked(l)
			s.mu.Unlock()
		}()
		_, err := s.do(s.ctx, true, func(ctx context.Context, service api.Service) (err error) {
			l.grant, err = service.Acquire(ctx, s.id, l.path, l.mode, 0, 0)
			return err
		})
		if err == nil {
			_ = s.release(s.ctx, l)
		}
	})
}

func (s *Session) forgetLocked(l *Lock) {
	if s.mu.locks[l.path] == l {
		delete(s.mu.locks, l.path)
		close(l.free)
	}
}

// endLocked ends the Lock. The caller holds s.mu.
func (l *Lock) endLocked() {
	if !l.ended.Swap(true) {
		close(l.done)
	}
}

// Session returns the session that holds the lock.
func (l *Lock) Session() *Session { return l.s }

// Path returns the path of the lock's node.
func (l *Lock) Path() string { return l.path }

// Held reports whether the session holds the lock now. It makes no call: it returns true only while
// the lease is valid on the session's clock, and the leader does not grant the lock to another
// session before the lease ends.
func (l *Lock) Held() bool { return l.s.valid() && !l.ended.Load() }

// Until returns for how long from now no other session can acquire the lock if the leader cannot be
// reached: the remaining lease and the lock-delay, less clock drift. If it is not positive, another
// session may have the lock.
func (l *Lock) Until() time.Duration {
	end := l.s.end.Load()
	if end == leaseOver || l.ended.Load() {
		return 0
	}
	return time.Duration(end) + api.LocalLease(l.delay) - l.s.clock.Now()
}

// Sequencer returns the proof for a third party that the lock is held. See Client.CheckSequencer.
func (l *Lock) Sequencer() api.Sequencer { return l.grant.Sequencer }

// Generation returns the lock generation. It grows each time the lock goes from free to held, so
// later holders have larger ones.
func (l *Lock) Generation() uint64 { return l.grant.Sequencer.LockGeneration }

// Done returns a channel that is closed when the lock is released, or lost with its session. In
// jeopardy the lock is not lost yet, but it is not held either.
func (l *Lock) Done() <-chan struct{} { return l.done }

// Release releases the lock, which is not held from the moment of the call. An error,
// api.ErrNotReady or ctx's, means that other sessions may find it held until this session ends; the
// release is retried in the background. Releasing a lock that was lost returns nil.
func (l *Lock) Release(ctx context.Context) error {
	s := l.s
	s.mu.Lock()
	ended := l.ended.Load()
	l.endLocked()
	s.mu.Unlock()
	if ended {
		return nil
	}
	err := s.release(ctx, l)
	if err == nil || s.Err() != nil {
		s.mu.Lock()
		s.forgetLocked(l)
		s.mu.Unlock()
		return nil
	}
	// The path stays reserved until the leader has released the lock.
	s.retryRelease(l)
	return fmt.Errorf("release %s: %w", l.path, err)
}

// release releases a hold at the leader.
func (s *Session) release(ctx context.Context, l *Lock) error {
	_, err := s.do(ctx, true, func(ctx context.Context, service api.Service) error {
		return service.Release(ctx, s.id, l.path, l.grant.Hold)
	})
	if errors.Is(err, api.ErrNotHeld) { // an earlier attempt succeeded: the request names the hold
		return nil
	}
	return err
}

// retryRelease retries a release in the background until it succeeds or the session ends.
func (s *Session) retryRelease(l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return
	}
	s.wg.Go(func() {
		for r := (retrier{}); s.ctx.Err() == nil; timing.Sleep(s.ctx, r.next()) {
			if s.release(s.ctx, l) == nil {
				break
			}
		}
		s.mu.Lock()
		s.forgetLocked(l)
		s.mu.Unlock()
	})
}
