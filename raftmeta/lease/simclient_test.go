package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

var (
	simFiles = []string{"/f/a", "/f/b"}
	simLocks = []string{"/l/a", "/l/b"}
	errLost  = errors.New("message lost")
)

// simClient is a minimal client of the service: one session at a time, with KeepAlives, a cache,
// and locks.
type simClient struct {
	sim   *sim
	id    int
	rng   *rand.Rand
	clock *simClock

	mu struct {
		sync.Mutex
		session api.SessionID
		// until is when its lease ends, by its own clock.
		until time.Duration
		lost  bool // the session has ended, or was abandoned
		term  uint64
		acked uint64
		cache map[string]uint64 // generations
		// invalid has the number of the last event of each path, and reset that of the last
		// FailedOver, in this term.
		invalid map[string]uint64
		reset   uint64
		locks   map[string]api.Grant
	}
}

func newSimClient(v *sim, id int, rng *rand.Rand) simUser {
	return &simClient{sim: v, id: id, rng: rng, clock: newSimClock(rng)}
}

// believesLocked reports whether the client relies on its session.
func (c *simClient) believesLocked() bool {
	return c.mu.session != 0 && !c.mu.lost && c.clock.Now() < c.mu.until
}

// expireCacheLocked drops the cache if the lease has ended.
func (c *simClient) expireCacheLocked() {
	if !c.believesLocked() && !c.sim.broken.keepCache {
		clear(c.mu.cache)
	}
}

// server returns a server that may lead.
func (c *simClient) server() *simServer {
	v := c.sim
	if v.rng.IntN(4) > 0 {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.mu.leader != nil {
			return v.mu.leader
		}
	}
	return v.servers[v.rng.IntN(len(v.servers))]
}

// call makes a call over a network that delays and loses messages.
func (c *simClient) call(f func(ctx context.Context, s api.Service) error) error {
	ctx, cancel := context.WithTimeout(c.sim.ctx, time.Duration(1+c.sim.rng.IntN(6000))*time.Millisecond)
	defer cancel()
	if !sleep(ctx, c.sim.rng.delay(300*time.Millisecond)) || c.sim.rng.IntN(30) == 0 {
		return errLost
	}
	err := f(ctx, c.server().service)
	if !sleep(c.sim.ctx, c.sim.rng.delay(300*time.Millisecond)) || c.sim.rng.IntN(30) == 0 {
		return errLost
	}
	return err
}

// run runs one session after another.
func (c *simClient) run() {
	for sleep(c.sim.ctx, time.Duration(c.rng.IntN(500))*time.Millisecond) {
		lease := time.Duration(500+c.rng.IntN(4000)) * time.Millisecond
		var id api.SessionID
		began := c.clock.Now()
		err := c.call(func(ctx context.Context, s api.Service) (err error) {
			id, lease, err = s.OpenSession(ctx, fmt.Sprint("c", c.id), lease)
			return err
		})
		if err != nil {
			continue
		}
		c.mu.Lock()
		c.mu.session, c.mu.until, c.mu.lost = id, began+api.LocalLease(lease), false
		c.mu.term, c.mu.acked, c.mu.reset = 0, 0, 0
		c.mu.cache, c.mu.invalid, c.mu.locks = map[string]uint64{}, map[string]uint64{}, map[string]api.Grant{}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(c.sim.ctx, time.Duration(c.rng.IntN(15_000))*time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() { c.keepAlives(ctx, cancel, id, lease) })
		wg.Go(func() { c.readCache(ctx) })
		for ctx.Err() == nil {
			c.act(ctx, id)
			sleep(ctx, time.Duration(c.sim.rng.IntN(300))*time.Millisecond)
		}
		// Half of the sessions are closed; the others die with the client.
		wg.Wait()
		c.mu.Lock()
		c.mu.lost = true
		c.mu.Unlock()
		if c.rng.IntN(2) == 0 {
			_ = c.call(func(ctx context.Context, s api.Service) error { return s.CloseSession(ctx, id) })
		}
		cancel()
	}
}

type simAnswer struct {
	resp api.KeepAliveResponse
	err  error
}

// keepAlives maintains the session. Requests and answers may be delayed, lost or duplicated.
func (c *simClient) keepAlives(ctx context.Context, lost func(), id api.SessionID, lease time.Duration) {
	for ctx.Err() == nil {
		if c.sim.rng.IntN(60) == 0 { // paused, as by SIGSTOP
			sleep(ctx, c.sim.rng.delay(8*time.Second))
		}
		c.mu.Lock()
		req := api.KeepAliveRequest{Session: id, Term: c.mu.term, Acked: c.mu.acked, Hang: lease}
		sent := c.clock.Now()
		c.mu.Unlock()
		got := make(chan simAnswer, 4)
		for range 1 + c.sim.rng.IntN(20)/19 {
			c.sim.wg.Go(func() { c.oneKeepAlive(req, got) })
		}
		wait := c.clock.NewTimer(lease)
		select {
		case a := <-got:
			c.answered(sent, a, lost)
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

func (c *simClient) oneKeepAlive(req api.KeepAliveRequest, got chan<- simAnswer) {
	v := c.sim
	s := c.server()
	if !sleep(v.ctx, v.rng.delay(time.Second)) || v.rng.IntN(40) == 0 {
		return
	}
	s.service.KeepAlive(v.ctx, req, func(resp api.KeepAliveResponse, err error) {
		if v.broken.noWait {
			v.wg.Go(func() { s.assumeAcked(req.Session) })
		}
		v.wg.Go(func() {
			if sleep(v.ctx, v.rng.delay(time.Second)) && v.rng.IntN(40) > 0 {
				got <- simAnswer{resp, err}
			}
		})
	})
}

// assumeAcked violates the rule that writes wait for acknowledgements.
func (s *simServer) assumeAcked(id api.SessionID) {
	k := s.service.setManager(nil)
	s.service.setManager(k)
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.mu.sessions[id]; t != nil {
		k.ackLocked(t, t.sent)
	}
}

// answered processes the answer to a KeepAlive sent at sent.
func (c *simClient) answered(sent time.Duration, a simAnswer, lost func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(a.err, api.ErrNoSession) {
		c.mu.lost = true
		lost()
		return
	}
	if a.err != nil || c.mu.lost {
		return
	}
	c.expireCacheLocked()
	if a.resp.Term > c.mu.term {
		clear(c.mu.cache)
		clear(c.mu.invalid)
		c.mu.term, c.mu.acked, c.mu.reset = a.resp.Term, 0, 0
	}
	if a.resp.Term == c.mu.term {
		c.takeEventsLocked(a.resp)
	}
	until := sent + api.LocalLease(a.resp.Lease)
	if c.sim.broken.leaseFromAnswer {
		until = c.clock.Now() + a.resp.Lease
	}
	c.mu.until = max(c.mu.until, until)
	c.sim.wg.Go(c.sim.checks.compareLocks)
}

func (c *simClient) takeEventsLocked(resp api.KeepAliveResponse) {
	for i, e := range resp.Events {
		seq := resp.First + uint64(i)
		if seq <= c.mu.acked {
			continue
		}
		if i == 0 && seq > c.mu.acked+1 && e.Kind != api.FailedOver {
			c.sim.checks.fail("client %d: events from %d after %d", c.id, seq, c.mu.acked)
		}
		switch e.Kind {
		case api.FailedOver:
			clear(c.mu.cache)
			c.mu.reset = seq
		case api.CacheInvalid:
			delete(c.mu.cache, e.Path)
			c.mu.invalid[e.Path] = seq
		}
		c.mu.acked = seq
	}
}

// readCache drops the cache when the lease ends, as a real client would before each use of it.
func (c *simClient) readCache(ctx context.Context) {
	for sleep(ctx, 50*time.Millisecond) {
		c.mu.Lock()
		c.expireCacheLocked()
		c.mu.Unlock()
	}
}

// act makes one random call.
func (c *simClient) act(ctx context.Context, id api.SessionID) {
	file, lock := simFiles[c.rng.IntN(2)], simLocks[c.rng.IntN(2)]
	switch n := c.rng.IntN(20); {
	case n < 8:
		c.get(file, id)
	case n < 12:
		began, elections := time.Now(), c.sim.elections.Load()
		err := c.call(func(ctx context.Context, s api.Service) error {
			began = time.Now()
			_, err := s.Set(ctx, file, []byte(fmt.Sprint(began)), api.AnyGeneration, api.SetOptions{})
			c.sim.checks.wrote(began, elections, err)
			return err
		})
		_ = err
	case n < 13:
		_ = c.call(func(ctx context.Context, s api.Service) error {
			return s.Delete(ctx, file, api.AnyGeneration, api.SetOptions{})
		})
	case n < 14:
		_ = c.call(func(ctx context.Context, s api.Service) error {
			_, err := s.SetACL(ctx, file, fmt.Sprint(c.rng.IntN(9)), api.SetOptions{})
			return err
		})
	case n < 15:
		p := fmt.Sprintf("/e/%d", c.rng.IntN(3))
		_ = c.call(func(ctx context.Context, s api.Service) error {
			_, err := s.Set(ctx, p, nil, api.AnyGeneration, api.SetOptions{Session: id, Ephemeral: true})
			return err
		})
		c.get(fmt.Sprintf("/e/%d", c.rng.IntN(3)), id)
	case n < 16:
		_ = c.call(func(ctx context.Context, s api.Service) error {
			_, err := s.Watch(ctx, id, []string{file, lock, "/e"}[c.rng.IntN(3)], api.AllEvents, 0)
			return err
		})
	default:
		c.lock(ctx, id, lock)
	}
}

// get reads a file, and caches it if permitted.
func (c *simClient) get(path string, id api.SessionID) {
	var f api.File
	var perm api.CachePermission
	err := c.call(func(ctx context.Context, s api.Service) (err error) {
		f, perm, err = s.Get(ctx, path, id)
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && perm.OK && perm.Term == c.mu.term && perm.At >= c.mu.invalid[path] && perm.At >= c.mu.reset && c.believesLocked() {
		c.mu.cache[path] = max(f.Generation, f.ACLGeneration)
		c.sim.checks.cached.Add(1)
	}
}

// lock acquires a lock, writes under it and releases it.
func (c *simClient) lock(ctx context.Context, id api.SessionID, path string) {
	mode := api.Exclusive
	if c.rng.IntN(4) == 0 {
		mode = api.Shared
	}
	wait := time.Duration(c.rng.IntN(3000)) * time.Millisecond
	delay := time.Duration(c.rng.IntN(3)) * time.Second
	var g api.Grant
	err := c.call(func(ctx context.Context, s api.Service) (err error) {
		g, err = s.Acquire(ctx, id, path, mode, wait, delay)
		return err
	})
	if err != nil {
		return
	}
	c.mu.Lock()
	c.mu.locks[path] = g
	c.sim.wg.Go(c.sim.checks.compareLocks)
	c.mu.Unlock()
	sleep(ctx, time.Duration(c.rng.IntN(2000))*time.Millisecond)
	_ = c.call(func(ctx context.Context, s api.Service) error {
		_, err := s.Set(ctx, "/guarded"+path, []byte(g.Sequencer.String()), api.AnyGeneration, api.SetOptions{Guard: g.Sequencer})
		return err
	})
	if ctx.Err() != nil || c.rng.IntN(3) == 0 {
		return // held until the session ends
	}
	c.mu.Lock()
	delete(c.mu.locks, path)
	c.mu.Unlock()
	_ = c.call(func(ctx context.Context, s api.Service) error { return s.Release(ctx, id, path, g.Hold) })
}

func (c *simClient) believes(id api.SessionID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.session == id && c.believesLocked()
}

func (c *simClient) holds(path string) api.Mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.believesLocked() {
		return 0
	}
	return c.mu.locks[path].Sequencer.Mode
}

func (c *simClient) caches(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.mu.cache[path]
	return ok && !c.mu.lost && (c.believesLocked() || c.sim.broken.keepCache)
}
