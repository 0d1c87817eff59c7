package session

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// State is how a session stands, as Chubby tells its applications.
type State uint8

const (
	// Valid: the lease holds. Locks are held, and the cache answers.
	Valid State = iota
	// Jeopardy: the lease has run out, and the leader was not heard of. Nothing is
	// believed until it is: either the session is Valid again ("safe"), with all its
	// locks, or Expired when the grace period is over.
	Jeopardy
	// Expired: the session has ended, and all that it held is lost.
	Expired
	// Closed: the application has closed it.
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

// Session is a client's standing with the group. It is safe for concurrent use.
type Session struct {
	client *Client
	opts   Options
	clock  Clock
	id     api.SessionID
	lease  time.Duration // as granted when it was opened
	cache  *cache

	// end is when, on the clock, the session stops to believe in its lease; the
	// smallest integer once it is over for good. Changed under mu.
	end atomic.Int64

	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	done    chan struct{}
	wg      sync.WaitGroup
	answers chan answer   // to the keeper
	renewed chan struct{} // to the warden: one token

	watches watches

	// mu guards the fields in it. Never held across I/O. Order: mu, then watches.mu and
	// cache.mu.
	mu struct {
		sync.Mutex
		state   State
		changed chan struct{}    // closed at the next change of state
		err     error            // why the session is over
		locks   map[string]*Lock // held or being acquired, by path
	}
}

// over is the end of a session that is over: before any reading of a clock.
const over = math.MinInt64

// Open opens a session. It returns when the leader has answered its first KeepAlive.
// Errors: ErrUnreachable and other api.ErrNotReady when no leader was found in time,
// *api.TooLargeError when there are too many sessions, ctx's.
func (c *Client) Open(ctx context.Context, o Options) (*Session, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Session{
		client: c, opts: o, clock: c.cfg.Clock, done: make(chan struct{}),
		answers: make(chan answer, answersMax), renewed: make(chan struct{}, 1),
	}
	s.cache = newCache(o.CacheFiles, o.CacheBytes, s.valid)
	s.mu.changed = make(chan struct{})
	s.mu.locks = make(map[string]*Lock)
	s.watches.init(s)
	var sent time.Duration
	// A session that was opened by an attempt whose answer was lost ends by itself.
	_, err = c.do(ctx, true, func(service api.Service) error {
		sent = s.clock.Now()
		s.id, s.lease, err = service.OpenSession(ctx, o.Name, o.Lease)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	s.end.Store(int64(sent + api.LocalLease(s.lease)))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := make(chan struct{})
	k := &keeper{Session: s, first: first}
	s.wg.Go(k.run)
	s.wg.Go(s.warden)
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
	return nil, fmt.Errorf("open session: %w", err)
}

// ID returns the session's number in the group.
func (s *Session) ID() api.SessionID { return s.id }

// Client returns the Client that the session was opened with.
func (s *Session) Client() *Client { return s.client }

// Lease returns the lease that the leader granted at first.
func (s *Session) Lease() time.Duration { return s.lease }

// valid tells whether the lease holds now. It asks nobody.
func (s *Session) valid() bool { return int64(s.clock.Now()) < s.end.Load() }

// Valid tells whether the session's lease holds now: then, and only then, it holds
// its locks. It asks nobody.
func (s *Session) Valid() bool { return s.valid() }

// State returns how the session stands. It may be a moment behind Valid.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state
}

// Changed returns the state, and a channel that is closed when it changes: an
// application that looks after each change misses none that still matters.
func (s *Session) Changed() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.state, s.mu.changed
}

// Done returns a channel that is closed when the session is Expired or Closed.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns ErrExpired or api.ErrClosed once the session is over, and nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// setLocked changes the state.
func (s *Session) setLocked(to State) {
	if s.mu.state == to {
		return
	}
	s.mu.state = to
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// finish ends the session for good. Only the first call counts.
func (s *Session) finish(state State, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		return false
	}
	s.mu.err = err
	s.end.Store(over)
	s.cache.empty(0)
	for _, l := range s.mu.locks {
		l.loseLocked()
	}
	clear(s.mu.locks)
	s.setLocked(state)
	close(s.done)
	s.cancel()
	s.watches.close(err)
	return true
}

// expire ends the session because the leader says so, or nobody says otherwise.
func (s *Session) expire(why string) {
	if s.finish(Expired, ErrExpired) {
		s.client.cfg.Logger.Warn("lock service session expired: its locks are lost", "session", s.id, "name", s.opts.Name, "why", why)
	}
}

// Close ends the session: it stops to believe in its locks, and then tells the leader,
// so that they are free at once. If ctx ends first, or no leader is found, they are
// free when the lease has run out, and the lock-delays. Close waits for the session's
// goroutines. It returns the leader's error, or nil if the session was over already.
func (s *Session) Close(ctx context.Context) error {
	first := s.finish(Closed, api.ErrClosed)
	s.wg.Wait()
	if !first {
		return nil
	}
	_, err := s.client.do(ctx, true, func(service api.Service) error { return service.CloseSession(ctx, s.id) })
	return err
}

// warden turns the state when the lease or the grace period runs out. Nothing that
// matters for safety waits for it: see valid.
func (s *Session) warden() {
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
			s.client.cfg.Logger.Warn("lock service session in jeopardy: its lease ran out, no leader was heard of", "session", s.id, "name", s.opts.Name, "grace", s.opts.Grace)
			continue
		case state == Jeopardy:
			at = end + s.opts.Grace
		}
		s.mu.Unlock()
		if state == Jeopardy && now >= at {
			s.expire("no leader in the grace period")
			return
		}
		// A timer may be a hair early by this clock: one of nothing would spin.
		fired, stop := s.clock.Timer(max(at-now, 0) + time.Millisecond)
		select {
		case <-fired:
		case <-s.renewed:
		case <-s.done:
		}
		stop()
	}
}

// renew takes over a lease that is good until end. It returns false when the session
// is over. A lease that had run out lives again only with an empty cache: see
// cache.get.
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

// within returns ctx, ended also by the session's end.
func (s *Session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// do makes a call of this session's.
func (s *Session) do(ctx context.Context, again bool, f func(context.Context, api.Service) error) (unknown bool, err error) {
	if err := s.Err(); err != nil {
		return false, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	unknown, err = s.client.do(ctx, again, func(service api.Service) error { return f(ctx, service) })
	return unknown, s.judge(err)
}
