package session

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// waitMax is how long one Acquire waits at the leader; it is then made again. So a
// leader that has forgotten it, or a server that no longer leads, costs no more.
const waitMax = 30 * time.Second

// Lock is a lock that a session has acquired.
type Lock struct {
	s     *Session
	path  string
	mode  api.Mode
	delay time.Duration
	grant api.Grant // set before the Lock is handed out

	gone atomic.Bool   // released, given up, or lost with the session
	done chan struct{} // closed then
	free chan struct{} // closed when the path is free for another Lock
}

// LockOptions are those of Acquire.
type LockOptions struct {
	// Try makes Acquire return *api.LockedError at once rather than wait.
	Try bool
	// Delay is the lock-delay: how long the lock stays closed to others when the
	// session expires, at most api.LockDelayMax. Work that was begun under the lock
	// has that time to end.
	Delay time.Duration
}

// Acquire takes the lock of the node at path, making an empty file if there is none.
// It waits for it until ctx ends: the error is then *api.LockedError and ctx's, if
// the lock was seen held. Others: *api.PathError, api.ErrEphemeral for an ephemeral
// file, ErrExpired, api.ErrClosed, api.ErrNotReady; a *api.LockedError without
// waiting for a path that this session holds, or acquires, already.
func (s *Session) Acquire(ctx context.Context, path string, mode api.Mode, o LockOptions) (*Lock, error) {
	l := &Lock{s: s, path: path, mode: mode, delay: min(max(o.Delay, 0), api.LockDelayMax), done: make(chan struct{}), free: make(chan struct{})}
	if err := s.reserve(ctx, l); err != nil {
		return nil, err
	}
	var locked error // what kept it from us when last asked
	for {
		wait := waitMax
		if at, ok := ctx.Deadline(); ok {
			// The answer should be here before ctx ends.
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
		if isLocked && !o.Try && sleep(ctx, 25*time.Millisecond) && s.Err() == nil {
			continue
		}
		s.giveUp(l, unknown)
		if ctx.Err() != nil && locked != nil {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), locked)
		}
		return nil, err
	}
}

// reserve notes that the path's lock is this Lock's business, once the leader has had
// back an earlier one.
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
		case !other.gone.Load():
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

// acquired hands out a lock that the leader has granted.
func (s *Session) acquired(l *Lock) (*Lock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return nil, s.mu.err
	}
	return l, nil
}

// giveUp ends an Acquire that failed. If the leader may have granted the lock all the
// same, it is asked for once more in the background and given back.
func (s *Session) giveUp(l *Lock, doubt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.loseLocked()
	if !doubt || s.mu.err != nil {
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

// loseLocked ends the Lock; s.mu is held.
func (l *Lock) loseLocked() {
	if !l.gone.Swap(true) {
		close(l.done)
	}
}

// Session returns the session that holds the lock.
func (l *Lock) Session() *Session { return l.s }

// Path returns the path of the lock's node.
func (l *Lock) Path() string { return l.path }

// Held tells whether the session holds the lock now. It asks nobody: the answer is
// yes only while the session's lease holds by its own clock, and the leader gives the
// lock to nobody else before.
func (l *Lock) Held() bool { return l.s.valid() && !l.gone.Load() }

// Until returns for how long from now no other session can get the lock, if the
// leader is not heard of again: the rest of the lease, and the lock-delay less what
// clocks may drift. It is zero or less when another may have it.
func (l *Lock) Until() time.Duration {
	end := l.s.end.Load()
	if end == over || l.gone.Load() {
		return 0
	}
	return time.Duration(end) + api.LocalLease(l.delay) - l.s.clock.Now()
}

// Sequencer returns what tells a third party that the lock is held. See
// Client.CheckSequencer.
func (l *Lock) Sequencer() api.Sequencer { return l.grant.Sequencer }

// Generation returns the lock generation: it grows each time that the lock goes from
// free to held, so later holders have larger ones.
func (l *Lock) Generation() uint64 { return l.grant.Sequencer.LockGeneration }

// Done returns a channel that is closed when the lock is lost with its session, or
// released. A session in jeopardy has not lost it yet, but does not hold it either.
func (l *Lock) Done() <-chan struct{} { return l.done }

// Release gives the lock back; it is not held from the moment of the call. An error
// means that it may stay locked until the session ends: api.ErrNotReady, ctx's. A lock
// that was lost is released already.
func (l *Lock) Release(ctx context.Context) error {
	s := l.s
	s.mu.Lock()
	gone := l.gone.Load()
	l.loseLocked()
	s.mu.Unlock()
	if gone {
		return nil
	}
	err := s.release(ctx, l)
	if err == nil || s.Err() != nil {
		s.mu.Lock()
		s.forgetLocked(l)
		s.mu.Unlock()
		return nil
	}
	// The path stays taken until the leader has it back.
	s.giveBack(l)
	return fmt.Errorf("release %s: %w", l.path, err)
}

// release tells the leader that a hold has ended.
func (s *Session) release(ctx context.Context, l *Lock) error {
	_, err := s.do(ctx, true, func(ctx context.Context, service api.Service) error {
		return service.Release(ctx, s.id, l.path, l.grant.Hold)
	})
	if errors.Is(err, api.ErrNotHeld) { // an earlier attempt was made: holds have numbers
		return nil
	}
	return err
}

// giveBack goes on releasing in the background, as long as the session lasts.
func (s *Session) giveBack(l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return
	}
	s.wg.Go(func() {
		for r := (retrier{}); s.ctx.Err() == nil; sleep(s.ctx, r.next()) {
			if s.release(s.ctx, l) == nil {
				break
			}
		}
		s.mu.Lock()
		s.forgetLocked(l)
		s.mu.Unlock()
	})
}
