package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// State is the state of a session, as Chubby reports it to applications.
type State uint8

const (
	// Valid: the lease is valid. Locks are held, and the cache answers.
	Valid State = iota
	// Jeopardy: the lease has run out without contact with the leader. No lock is held and the
	// cache does not answer. After contact the session is Valid again ("safe"), with all its locks;
	// after the grace period it is Expired.
	Jeopardy
	// Expired: the session has ended, and everything it held is lost.
	Expired
	// Closed: the application has closed the session.
	Closed
)

func (s State) String() string {
	switch s {
	case Valid:
		return "valid"
	case Jeopardy:
		return "jeopardy"
	case Expired:
		return "expired"
	}
	return "closed"
}

// Session is a session with the lock service. It is safe for concurrent use.
type Session struct {
	client *Client
	opts   Options
	clock  Clock
	id     api.SessionID
	lease  time.Duration // as granted when the session was opened
	cache  *cache

	// end is when, on the clock, the lease ends for this client; the smallest integer once the
	// session has ended. Changed under mu.
	end atomic.Int64

	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	done    chan struct{}
	wg      sync.WaitGroup
	answers chan answer   // to the keepalive goroutine
	renewed chan struct{} // to the state goroutine; capacity one

	watches watches

	// mu guards the fields in it. It is never held across I/O. Order: mu, then watches.mu and
	// cache.mu.
	mu struct {
		sync.Mutex
		state   State
		changed chan struct{}    // closed at the next change of state
		err     error            // why the session has ended
		locks   map[string]*Lock // held or being acquired, by path
	}
}

// leaseOver is the lease end of a session that has ended: before any time of a clock.
const leaseOver = math.MinInt64

// Open opens a session. It returns after the leader has answered the first KeepAlive. If the session
// expires before, because leaders fail just then, it opens another. Errors are
// ErrUnreachable and other api.ErrNotReady if no leader was found in time, *api.TooLargeError if
// there are too many sessions, and ctx's.
func (c *Client) Open(ctx context.Context, o Options) (*Session, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	for r := (retrier{}); ; {
		s, err := c.openOnce(ctx, o)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrExpired) || timing.Sleep(ctx, r.next()) != nil {
			return nil, fmt.Errorf("open session: %w", err)
		}
	}
}

func (c *Client) openOnce(ctx context.Context, o Options) (s *Session, err error) {
	s = &Session{
		client: c, opts: o, clock: c.cfg.Clock, done: make(chan struct{}),
		answers: make(chan answer, answersMax), renewed: make(chan struct{}, 1),
	}
	s.cache = newCache(o.CacheFiles, o.CacheBytes, s.valid)
	s.mu.changed = make(chan struct{})
	s.mu.locks = make(map[string]*Lock)
	s.watches.init(s)
	var sent time.Duration
	// A session of an earlier attempt whose answer was lost expires by itself.
	_, err = c.do(ctx, true, func(service api.Service) error {
		sent = s.clock.Now()
		s.id, s.lease, err = service.OpenSession(ctx, o.Name, o.Lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.end.Store(int64(sent + api.LocalLease(s.lease)))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := make(chan struct{})
	k := &keepalive{Session: s, first: first}
	s.wg.Go(k.run)
	s.wg.Go(s.stateLoop)
	select {
	case <-first:
		return s, nil
	case <-s.done:
		err = s.Err()
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.finish(Closed, api.ErrClosed)
	s.wg.Wait()
	return nil, err
}

// ID returns the id of the session.
func (s *Session) ID() api.SessionID { return s.id }

// Client returns the Client that opened the session.
func (s *Session) Client() *Client { return s.client }

// Lease returns the lease that the leader granted when the session was opened.
func (s *Session) Lease() time.Duration { return s.lease }

// valid reports whether the lease is valid now. It makes no call.
func (s *Session) valid() bool { return int64(s.clock.Now()) < s.end.Load() }

// Valid reports whether the session's lease is valid now. The session holds its locks exactly while
// it is. It makes no call.
func (s *Session) Valid() bool { return s.valid() }

// State returns the state of the session. It may lag slightly behind Valid.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state
}

// Changed returns the state, and a channel that is closed when the state changes. An application
// that calls it again after each change sees the latest state.
func (s *Session) Changed() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state, s.mu.changed
}

// Done returns a channel that is closed when the session is Expired or Closed.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns ErrExpired or api.ErrClosed after the session has ended, and nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// setLocked sets the state.
func (s *Session) setLocked(to State) {
	if s.mu.state == to {
		return
	}
	s.mu.state = to
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// finish ends the session. Only the first call has an effect; it returns true.
func (s *Session) finish(state State, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return false
	}
	s.mu.err = err
	s.end.Store(leaseOver)
	s.cache.empty(0)
	for _, l := range s.mu.locks {
		l.endLocked()
	}
	clear(s.mu.locks)
	s.setLocked(state)
	close(s.done)
	s.cancel()
	s.watches.close(err)
	return true
}

// expire ends the session because the leader does not know it, or because the grace period is over.
func (s *Session) expire(why string) {
	if s.finish(Expired, ErrExpired) {
		s.client.cfg.Logger.Warn("lock service session expired: its locks are lost", "session", s.id, "name", s.opts.Name, "cause", why)
	}
}

// Close ends the session. Its locks are no longer held, and then it is closed at the leader, which
// frees them at once. If ctx ends first, or no leader is found, they become free when the lease and
// the lock-delays have run out. Close waits for the session's goroutines. It returns the leader's
// error, or nil if the session had ended already.
func (s *Session) Close(ctx context.Context) error {
	first := s.finish(Closed, api.ErrClosed)
	s.wg.Wait()
	if !first {
		return nil
	}
	_, err := s.client.do(ctx, true, func(service api.Service) error { return service.CloseSession(ctx, s.id) })
	return err
}

// stateLoop is the state goroutine: it changes the state when the lease or the grace period ends.
// Safety does not depend on it: see valid.
func (s *Session) stateLoop() {
	for {
		s.mu.Lock()
		now, end := s.clock.Now(), time.Duration(s.end.Load())
		state, at := s.mu.state, end
		switch {
		case s.mu.err != nil:
			s.mu.Unlock()
			return
		case state == Valid && now >= end:
			s.cache.empty(0)
			s.setLocked(Jeopardy)
			s.mu.Unlock()
			s.client.cfg.Logger.Warn("lock service session in jeopardy: lease ran out without contact with a leader", "session", s.id, "name", s.opts.Name, "grace", s.opts.Grace)
			continue
		case state == Jeopardy:
			at = end + s.opts.Grace
		}
		s.mu.Unlock()
		if state == Jeopardy && now >= at {
			s.expire("no leader within the grace period")
			return
		}
		// The timer may fire slightly early by this clock; without the added time, the loop could
		// spin.
		fired, stop := s.clock.Timer(max(at-now, 0) + time.Millisecond)
		select {
		case <-fired:
		case <-s.renewed:
		case <-s.done:
		}
		stop()
	}
}

// renew extends the lease until end. It returns false if the session has ended. If the lease had
// run out, the cache is emptied first: see cache.get.
func (s *Session) renew(end time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return false
	}
	now, old := s.clock.Now(), time.Duration(s.end.Load())
	if end <= old {
		return true
	}
	if now >= old {
		s.cache.empty(0)
	}
	s.end.Store(int64(end))
	if s.mu.state == Jeopardy && now < end {
		s.setLocked(Valid)
		s.client.cfg.Logger.Info("lock service session safe again", "session", s.id, "name", s.opts.Name)
		select {
		case s.renewed <- struct{}{}:
		default:
		}
	}
	return true
}

// within returns a context that ends with ctx or with the session.
func (s *Session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// do makes a call on behalf of this session. See Client.do.
func (s *Session) do(ctx context.Context, again bool, f func(context.Context, api.Service) error) (unknown bool, err error) {
	if err := s.Err(); err != nil {
		return false, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	unknown, err = s.client.do(ctx, again, func(service api.Service) error { return f(ctx, service) })
	return unknown, s.callError(err)
}
