package lease

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

// simSession is a client that uses package session.
type simSession struct {
	sim   *sim
	id    int
	rng   *rand.Rand
	clock *simClock
	// cut is set while the link to the servers is down.
	cut atomic.Bool

	mu struct {
		sync.Mutex
		session *session.Session
		locks   map[string]simLock
	}
}

type simLock struct {
	*session.Lock
	mode api.Mode
}

func newSimSession(v *sim, id int, rng *rand.Rand) simUser {
	c := &simSession{sim: v, id: id, rng: rng, clock: newSimClock(rng)}
	c.mu.locks = map[string]simLock{}
	return c
}

// Timer makes simClock a session.Clock.
func (c *simClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := c.NewTimer(d)
	return t.C, func() { t.Stop() }
}

func (c *simSession) now() *session.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.session
}

func (c *simSession) believes(id api.SessionID) bool {
	s := c.now()
	return s != nil && s.ID() == id && s.Valid()
}

func (c *simSession) holds(path string) api.Mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.mu.locks[path]; ok && l.Held() {
		return l.mode
	}
	return 0
}

// ended is a context that has ended: a Get with it is answered from the cache or not at all.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (c *simSession) caches(path string) bool {
	s := c.now()
	if s == nil {
		return false
	}
	_, err := s.Get(ended, path)
	return err == nil
}

func (c *simSession) run() {
	v := c.sim
	for sleep(v.ctx, time.Duration(c.rng.IntN(500))*time.Millisecond) {
		c.life()
	}
}

// life runs one session.
func (c *simSession) life() {
	v := c.sim
	client, err := session.NewClient(session.Config{
		Locator: session.Addresses{"0", "1", "2"}, Dialer: c, Clock: c.clock,
		RetryTimeMax: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		v.checks.fail("%v", err)
		return
	}
	defer func() { _ = client.Close() }()
	c.cut.Store(false)
	s, err := client.Open(v.ctx, session.Options{
		Name: fmt.Sprint("c", c.id), Lease: time.Duration(500+c.rng.IntN(4000)) * time.Millisecond,
		Grace: time.Duration(1+c.rng.IntN(20)) * time.Second,
	})
	if err != nil {
		return
	}
	c.mu.Lock()
	c.mu.session = s
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(v.ctx, time.Duration(c.rng.IntN(20_000))*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil && s.Err() == nil {
		switch c.rng.IntN(40) {
		case 0:
			c.cut.Store(true)
			sleep(ctx, v.rng.delay(8*time.Second))
			c.cut.Store(false)
		default:
			c.act(ctx, s)
		}
		sleep(ctx, time.Duration(c.rng.IntN(300))*time.Millisecond)
	}
	// Half of the sessions are closed; the others disappear.
	c.cut.Store(c.rng.IntN(2) == 0)
	closing, cancelClose := context.WithTimeout(v.ctx, time.Duration(c.rng.IntN(3))*time.Second)
	defer cancelClose()
	_ = s.Close(closing)
}

func (c *simSession) act(ctx context.Context, s *session.Session) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+c.rng.IntN(6000))*time.Millisecond)
	defer cancel()
	file, lock := simFiles[c.rng.IntN(2)], simLocks[c.rng.IntN(2)]
	switch n := c.rng.IntN(20); {
	case n < 8:
		if _, err := s.Get(ctx, file); err == nil && c.caches(file) {
			c.sim.checks.cached.Add(1)
		}
	case n < 12:
		c.sim.checks.writes.Add(1)
		_, _ = s.Set(ctx, file, []byte(fmt.Sprint(n)), api.AnyGeneration, api.SetOptions{})
	case n < 13:
		_ = s.Delete(ctx, file, api.AnyGeneration, api.SetOptions{})
	case n < 14:
		_, _ = s.SetACL(ctx, file, fmt.Sprint(n), api.SetOptions{})
	case n < 15:
		_, _ = s.Set(ctx, fmt.Sprintf("/e/%d", c.rng.IntN(3)), nil, api.AnyGeneration, api.SetOptions{Ephemeral: true})
		_, _ = s.Get(ctx, fmt.Sprintf("/e/%d", c.rng.IntN(3)))
	default:
		c.lock(ctx, s, lock)
	}
}

func (c *simSession) lock(ctx context.Context, s *session.Session, path string) {
	mode := api.Exclusive
	if c.rng.IntN(4) == 0 {
		mode = api.Shared
	}
	l, err := s.Acquire(ctx, path, mode, session.LockOptions{Delay: time.Duration(c.rng.IntN(3)) * time.Second})
	if err != nil {
		return
	}
	c.mu.Lock()
	c.mu.locks[path] = simLock{l, mode}
	c.mu.Unlock()
	c.sim.checks.compareLocks()
	sleep(ctx, time.Duration(c.rng.IntN(2000))*time.Millisecond)
	_, _ = s.Set(ctx, "/guarded"+path, []byte(l.Sequencer().String()), api.AnyGeneration, api.SetOptions{Guard: l.Sequencer()})
	if c.rng.IntN(3) > 0 {
		_ = l.Release(ctx)
	}
}

// Dial implements session.Dialer.
func (c *simSession) Dial(ctx context.Context, addr string) (session.Peer, error) {
	return session.Peer{Service: simLink{c, c.sim.servers[addr[0]-'0'].service}}, nil
}

// simLink is a client's link to one server.
type simLink struct {
	c       *simSession
	service api.Service
}

// pass makes a call. A change whose call was lost may have been made.
func (l simLink) pass(ctx context.Context, change bool, f func(ctx context.Context) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v := l.c.sim
	lost := func(sent bool) error {
		err := fmt.Errorf("%w: %w", api.ErrNotReady, &rpc.ConnLostError{Sent: sent, Err: errLost})
		if change && sent {
			err = fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, &rpc.ConnLostError{Sent: sent, Err: errLost})
		}
		return err
	}
	if !sleep(ctx, v.rng.delay(300*time.Millisecond)) || l.c.cut.Load() || v.rng.IntN(40) == 0 {
		return lost(false)
	}
	done := make(chan error, 1)
	// The server continues after the client has stopped waiting.
	v.wg.Go(func() {
		server, cancel := context.WithTimeout(v.ctx, 6*time.Second)
		defer cancel()
		done <- f(server)
	})
	select {
	case err := <-done:
		if !sleep(ctx, v.rng.delay(300*time.Millisecond)) || l.c.cut.Load() || v.rng.IntN(40) == 0 {
			return lost(true)
		}
		return err
	case <-ctx.Done():
		return lost(true)
	}
}

// call is pass for calls with a result.
func call[T any](l simLink, ctx context.Context, change bool, f func(ctx context.Context) (T, error)) (T, error) {
	got := make(chan T, 1)
	var none T
	err := l.pass(ctx, change, func(ctx context.Context) error {
		r, err := f(ctx)
		got <- r
		return err
	})
	if err != nil {
		return none, err
	}
	return <-got, nil
}

func (l simLink) OpenSession(ctx context.Context, name string, lease time.Duration) (api.SessionID, time.Duration, error) {
	id, err := call(l, ctx, true, func(ctx context.Context) (api.SessionID, error) {
		id, _, err := l.service.OpenSession(ctx, name, lease)
		return id, err
	})
	return id, lease, err
}

func (l simLink) KeepAlive(_ context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	v := l.c.sim
	for range 1 + v.rng.IntN(20)/19 {
		v.wg.Go(func() {
			if !sleep(v.ctx, v.rng.delay(time.Second)) || l.c.cut.Load() || v.rng.IntN(40) == 0 {
				return
			}
			l.service.KeepAlive(v.ctx, req, func(resp api.KeepAliveResponse, err error) {
				v.wg.Go(func() {
					if sleep(v.ctx, v.rng.delay(time.Second)) && !l.c.cut.Load() && v.rng.IntN(40) > 0 {
						done(resp, err)
					}
				})
			})
		})
	}
}

func (l simLink) CloseSession(ctx context.Context, s api.SessionID) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.CloseSession(ctx, s) })
}

type simGot struct {
	f    api.File
	perm api.CachePermission
}

func (l simLink) Get(ctx context.Context, path string, s api.SessionID) (api.File, api.CachePermission, error) {
	g, err := call(l, ctx, false, func(ctx context.Context) (simGot, error) {
		f, perm, err := l.service.Get(ctx, path, s)
		f.Data = slices.Clone(f.Data)
		return simGot{f, perm}, err
	})
	return g.f, g.perm, err
}

func (l simLink) GetStale(ctx context.Context, path string) (api.File, error) {
	return l.service.GetStale(ctx, path)
}

func (l simLink) Stat(ctx context.Context, path string) (api.Stat, error) {
	return l.service.Stat(ctx, path)
}

func (l simLink) List(ctx context.Context, dir string) ([]api.Stat, error) {
	return l.service.List(ctx, dir)
}

func (l simLink) ReadDirectory(ctx context.Context, dir string, o api.DirectoryOptions) (api.DirectoryPage, error) {
	return l.service.ReadDirectory(ctx, dir, o)
}

func (l simLink) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	return call(l, ctx, true, func(ctx context.Context) (uint64, error) { return l.service.Set(ctx, path, data, gen, o) })
}

func (l simLink) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.Delete(ctx, path, gen, o) })
}

func (l simLink) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (uint64, error) {
	return call(l, ctx, true, func(ctx context.Context) (uint64, error) { return l.service.SetACL(ctx, path, acl, o) })
}

func (l simLink) Acquire(ctx context.Context, s api.SessionID, path string, mode api.Mode, wait, delay time.Duration) (api.Grant, error) {
	return call(l, ctx, true, func(ctx context.Context) (api.Grant, error) {
		return l.service.Acquire(ctx, s, path, mode, wait, delay)
	})
}

func (l simLink) Release(ctx context.Context, s api.SessionID, path string, hold uint64) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.Release(ctx, s, path, hold) })
}

func (l simLink) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	return l.pass(ctx, false, func(ctx context.Context) error { return l.service.CheckSequencer(ctx, q) })
}

func (l simLink) Watch(ctx context.Context, s api.SessionID, path string, kinds api.EventKind, gen uint64) (uint64, error) {
	return call(l, ctx, true, func(ctx context.Context) (uint64, error) { return l.service.Watch(ctx, s, path, kinds, gen) })
}

func (l simLink) Unwatch(ctx context.Context, s api.SessionID, path string, watch uint64) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.Unwatch(ctx, s, path, watch) })
}
