package session

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// driftClock is a clock that runs too fast or too slow.
type driftClock struct {
	start time.Time
	rate  float64
}

func newDriftClock(rate float64) Clock { return driftClock{time.Now().Add(-time.Hour), rate} }

func (c driftClock) Now() time.Duration {
	return time.Duration(float64(time.Since(c.start)) * c.rate)
}

func (c driftClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(time.Duration(float64(d) / c.rate))
	return t.C, func() { t.Stop() }
}

// link is one client's link to the service. It may delay, lose or duplicate requests and answers.
type link struct {
	service api.Service
	wg      sync.WaitGroup

	mu    sync.Mutex
	rng   *rand.Rand
	cut   bool // nothing passes
	lose  float64
	twice float64
	delay time.Duration // at most, each way
}

// lost is the error of a call whose request or answer was lost with its connection.
func lost(sent bool) error { return &rpc.ConnLostError{Sent: sent, Err: io.EOF} }

type fate struct {
	request, answer bool // arrives
	twice           bool
	before, after   time.Duration
}

func (l *link) roll() fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := fate{
		request: !l.cut && l.rng.Float64() >= l.lose,
		answer:  !l.cut && l.rng.Float64() >= l.lose,
		twice:   l.rng.Float64() < l.twice,
	}
	if l.delay > 0 {
		f.before, f.after = rand2(l.rng, l.delay), rand2(l.rng, l.delay)
	}
	return f
}

func rand2(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func (l *link) setCut(cut bool) {
	l.mu.Lock()
	l.cut = cut
	l.mu.Unlock()
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// pass makes a call over the link.
func (l *link) pass(ctx context.Context, change bool, f func(context.Context) error) error {
	fate := l.roll()
	if !fate.request {
		if timing.Sleep(ctx, fate.before+100*time.Millisecond) != nil || !change {
			return fmt.Errorf("%w: %w", api.ErrNotReady, lost(false))
		}
		return fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, lost(true))
	}
	if fate.twice {
		l.wg.Go(func() { // delayed for long
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			time.Sleep(3 * (fate.before + fate.after))
			_ = f(ctx)
		})
	}
	timing.Sleep(ctx, fate.before)
	err := f(ctx)
	timing.Sleep(ctx, fate.after)
	if !fate.answer || l.isCut() {
		if change {
			return fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, lost(true))
		}
		return fmt.Errorf("%w: %w", api.ErrNotReady, lost(true))
	}
	if change && err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, ctx.Err())
	}
	return err
}

func (l *link) OpenSession(ctx context.Context, name string, lease time.Duration) (api.SessionID, time.Duration, error) {
	type opened struct {
		id      api.SessionID
		granted time.Duration
	}
	o, err := once(l, ctx, true, func(ctx context.Context) (o opened, err error) {
		o.id, o.granted, err = l.service.OpenSession(ctx, name, lease)
		return o, err
	})
	return o.id, o.granted, err
}

func (l *link) KeepAlive(ctx context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	fate := l.roll()
	if !fate.request {
		return // without an answer
	}
	deliver := func() {
		l.service.KeepAlive(context.Background(), req, func(r api.KeepAliveResponse, err error) {
			if !fate.answer || l.isCut() {
				return
			}
			l.wg.Go(func() {
				time.Sleep(fate.after)
				done(r, err)
			})
		})
	}
	l.wg.Go(func() {
		time.Sleep(fate.before)
		deliver()
		if fate.twice {
			time.Sleep(3 * fate.after)
			deliver()
		}
	})
}

func (l *link) CloseSession(ctx context.Context, s api.SessionID) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.CloseSession(ctx, s) })
}

func (l *link) Get(ctx context.Context, path string, s api.SessionID) (api.File, api.CachePermission, error) {
	type got struct {
		f    api.File
		perm api.CachePermission
	}
	g, err := once(l, ctx, false, func(ctx context.Context) (g got, err error) {
		g.f, g.perm, err = l.service.Get(ctx, path, s)
		return g, err
	})
	return g.f, g.perm, err
}

func (l *link) GetStale(ctx context.Context, path string) (api.File, error) {
	return l.service.GetStale(ctx, path)
}

func (l *link) Stat(ctx context.Context, path string) (api.Stat, error) {
	return l.service.Stat(ctx, path)
}

func (l *link) List(ctx context.Context, dir string) ([]api.Stat, error) {
	return l.service.List(ctx, dir)
}

func (l *link) ReadDirectory(ctx context.Context, dir string, o api.DirectoryOptions) (api.DirectoryPage, error) {
	return l.service.ReadDirectory(ctx, dir, o)
}

func (l *link) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	return once(l, ctx, true, func(ctx context.Context) (uint64, error) { return l.service.Set(ctx, path, data, gen, o) })
}

// once returns the result of the first execution.
func once[T any](l *link, ctx context.Context, change bool, f func(context.Context) (T, error)) (T, error) {
	var mu sync.Mutex
	var first T
	done := false
	err := l.pass(ctx, change, func(ctx context.Context) error {
		v, err := f(ctx)
		mu.Lock()
		defer mu.Unlock()
		if !done {
			first, done = v, true
		}
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return first, err
}

func (l *link) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.Delete(ctx, path, gen, o) })
}

func (l *link) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (uint64, error) {
	return once(l, ctx, true, func(ctx context.Context) (uint64, error) { return l.service.SetACL(ctx, path, acl, o) })
}

func (l *link) Acquire(ctx context.Context, s api.SessionID, path string, mode api.Mode, wait, delay time.Duration) (api.Grant, error) {
	return once(l, ctx, true, func(ctx context.Context) (api.Grant, error) {
		return l.service.Acquire(ctx, s, path, mode, wait, delay)
	})
}

func (l *link) Release(ctx context.Context, s api.SessionID, path string, hold uint64) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.Release(ctx, s, path, hold) })
}

func (l *link) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	return l.pass(ctx, false, func(ctx context.Context) error { return l.service.CheckSequencer(ctx, q) })
}

func (l *link) Watch(ctx context.Context, s api.SessionID, path string, kinds api.EventKind, gen uint64) (uint64, error) {
	return once(l, ctx, true, func(ctx context.Context) (uint64, error) { return l.service.Watch(ctx, s, path, kinds, gen) })
}

func (l *link) Unwatch(ctx context.Context, s api.SessionID, path string, watch uint64) error {
	return l.pass(ctx, true, func(ctx context.Context) error { return l.service.Unwatch(ctx, s, path, watch) })
}

// Dial implements Dialer.
func (l *link) Dial(ctx context.Context, addr string) (Peer, error) {
	if l.isCut() {
		<-ctx.Done()
		return Peer{}, ctx.Err()
	}
	return Peer{Service: l}, nil
}

// written records what was acknowledged for each path.
type written struct {
	api.Service
	mu    sync.Mutex
	least map[string]uint64 // the newest generation
	all   map[string]map[uint64]string
}

func (w *written) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	made, err := w.Service.Set(ctx, path, data, gen, o)
	if err != nil {
		return made, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.least[path] = max(w.least[path], made)
	if w.all[path] == nil {
		w.all[path] = map[uint64]string{}
	}
	w.all[path][made] = string(data)
	return made, nil
}

func (w *written) of(path string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.least[path]
}

func (w *written) data(path string, gen uint64) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, ok := w.all[path][gen]
	return data, ok
}

// world is a service and the links to it.
type world struct {
	t       testing.TB
	rng     *rand.Rand
	memory  *memory // nil if the service is another one
	written *written
	// failover replaces the leader after a while.
	failover func(after time.Duration)
	end      func()
	links    []*link
}

// newWorld returns a world with a service in memory whose clock runs at that rate.
func newWorld(t testing.TB, seed uint64, rate float64) *world {
	m := newMemory(newDriftClock(rate))
	w := worldOf(t, seed, m)
	w.memory, w.failover, w.end = m, m.failover, m.close
	return w
}

func worldOf(t testing.TB, seed uint64, s api.Service) *world {
	return &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)),
		written: &written{Service: s, least: map[string]uint64{}, all: map[string]map[uint64]string{}},
	}
}

func (w *world) close() {
	w.end()
	for _, l := range w.links {
		l.wg.Wait()
	}
}

// client returns a Client with its own link and clock.
func (w *world) client(rate float64) (*Client, *link) {
	l := &link{service: w.written, rng: rand.New(rand.NewPCG(w.rng.Uint64(), 2))}
	w.links = append(w.links, l)
	c, err := NewClient(Config{
		Locator: Addresses{"here"}, Dialer: l, Clock: newDriftClock(rate), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return c, l
}

func (w *world) session(rate float64, o Options) (*Session, *link) {
	c, l := w.client(rate)
	s, err := c.Open(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return s, l
}

// shut closes sessions and their clients.
func shut(t testing.TB, ss ...*Session) {
	t.Helper()
	for _, s := range ss {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		cancel()
		_ = s.Client().Close()
	}
}

// soak returns the factor for the number of random runs.
func soak() int {
	n, err := strconv.Atoi(os.Getenv("STELE_SOAK"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}
