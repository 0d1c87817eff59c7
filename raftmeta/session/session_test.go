package session

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// run runs a test in virtual time.
func run(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 1)
		f(t, w)
		w.close()
	})
}

func TestSessionIsKeptAlive(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s, _ := w.session(1, Options{Name: "a"})
		ctx := t.Context()
		l, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 10_000 {
			time.Sleep(10 * time.Millisecond)
			if !l.Held() || !s.Valid() || s.State() != Valid {
				t.Fatalf("not held, %v", s.State())
			}
		}
		if err := s.CheckSequencer(ctx, l.Sequencer()); err != nil {
			t.Error(err)
		}
		shut(t, s)
		if l.Held() || s.State() != Closed || !errors.Is(s.Err(), api.ErrClosed) {
			t.Errorf("after Close: %v %v", l.Held(), s.State())
		}
		w.memory.look(func(m *memory) {
			if len(m.sessions) != 0 || m.index > 10 {
				t.Errorf("%d sessions, %d commands", len(m.sessions), m.index)
			}
		})
	})
}

// TestJeopardy: a partition that ends within the grace period causes jeopardy and then a valid
// session; a longer one causes expiry.
func TestJeopardy(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s, link := w.session(1, Options{Grace: 10 * time.Second})
		l, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// The leader keeps the session, as after a failover.
		extend := func() {
			w.memory.look(func(m *memory) { m.sessions[s.ID()].end += time.Hour })
		}
		extend()
		state, changed := s.Changed()
		link.setCut(true)
		cut := time.Now()
		<-changed
		if state != Valid || s.State() != Jeopardy || l.Held() {
			t.Errorf("%v after %v", s.State(), time.Since(cut))
		}
		if d := time.Since(cut); d < time.Second || d > 2*time.Second {
			t.Errorf("jeopardy after %v", d)
		}
		time.Sleep(5 * time.Second)
		_, changed = s.Changed()
		link.setCut(false)
		<-changed
		if s.State() != Valid || !l.Held() {
			t.Errorf("%v after the partition", s.State())
		}
		extend()
		link.setCut(true)
		cut = time.Now()
		<-s.Done()
		if d := time.Since(cut); d < 11*time.Second || d > 13*time.Second || s.State() != Expired || !errors.Is(s.Err(), ErrExpired) {
			t.Errorf("%v %v after %v", s.State(), s.Err(), d)
		}
		<-l.Done()
		if _, err := s.Get(t.Context(), "/l"); !errors.Is(err, ErrExpired) || !errors.Is(err, api.ErrNoSession) {
			t.Errorf("Get: %v", err)
		}
		shut(t, s)
	})
}

// TestExpiredByTheLeader: the leader does not know the session.
func TestExpiredByTheLeader(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s, link := w.session(1, Options{})
		l, err := s.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		link.setCut(true)
		time.Sleep(5 * time.Second)
		link.setCut(false)
		<-s.Done()
		<-l.Done()
		if s.State() != Expired {
			t.Error(s.State())
		}
		shut(t, s)
	})
}

// TestLeaseEndsFirstAtTheClient: Held is false before the leader grants the lock to another
// session, for all clock rates within the bound.
func TestLeaseEndsFirstAtTheClient(t *testing.T) {
	for _, rates := range [][2]float64{{1, 1}, {0.95, 1.05}, {1.05, 0.95}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, rates[1])
			a, link := w.session(rates[0], Options{})
			b, _ := w.session(1, Options{})
			l, err := a.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(w.rng.Int64N(int64(5 * time.Second))))
			link.setCut(true)
			m, err := b.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
			if err != nil || l.Held() || !m.Held() {
				t.Errorf("rates %v: %v, old holds: %v", rates, err, l.Held())
			}
			link.setCut(false)
			shut(t, a, b)
			w.close()
		})
	}
}

// TestUntilEndsBeforeTheLockDelay: Until ends before the leader grants the lock to another session,
// after the holder's lease and its lock-delay, for all clock rates within the bound, and not long
// before.
func TestUntilEndsBeforeTheLockDelay(t *testing.T) {
	const delay = 20 * time.Second // the session's grace is longer: its end would end the lock as well
	for _, rates := range [][2]float64{{1, 1}, {0.95, 1.05}, {1.05, 0.95}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, rates[1])
			a, link := w.session(rates[0], Options{})
			b, _ := w.session(1, Options{})
			l, err := a.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{Delay: delay})
			if err != nil {
				t.Fatal(err)
			}
			link.setCut(true)
			cut := time.Now()
			time.Sleep(delay / 2)
			if left := l.Until(); l.Held() || left <= delay/4 || left > delay {
				t.Errorf("rates %v: after %v another can have it in %v, held: %v", rates, time.Since(cut), left, l.Held())
			}
			if _, err := b.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{}); err != nil {
				t.Fatal(err)
			}
			if left := l.Until(); left > 0 {
				t.Errorf("rates %v: another got it after %v, with %v left", rates, time.Since(cut), left)
			}
			link.setCut(false)
			shut(t, a, b)
			w.close()
		})
	}
}

func TestFailover(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s, _ := w.session(1, Options{})
		other, _ := w.client(1)
		ctx := t.Context()
		l, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		gen, err := s.Set(ctx, "/f", []byte("1"), 0, api.SetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		watcher, err := s.Watch(ctx, "/f", api.ContentsChanged)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(ctx, "/f"); err != nil || s.cache.len() != 1 {
			t.Fatalf("%v, %d cached", err, s.cache.len())
		}
		w.memory.failover(800 * time.Millisecond)
		if v, err := watcher.Next(ctx); err != nil || v.Kind != api.FailedOver {
			t.Errorf("first event: %+v %v", v, err)
		}
		if s.cache.len() != 0 {
			t.Error("the cache was not emptied")
		}
		if _, err := other.Set(ctx, "/f", []byte("2"), gen, api.SetOptions{}); err != nil {
			t.Error(err)
		}
		if v, err := watcher.Next(ctx); err != nil || v.Kind != api.ContentsChanged || v.Path != "/f" {
			t.Errorf("second event: %+v %v", v, err)
		}
		if f, err := s.Get(ctx, "/f"); err != nil || string(f.Data) != "2" {
			t.Errorf("%q %v", f.Data, err)
		}
		if !l.Held() {
			t.Error("the lock was lost")
		}
		_ = other.Close()
		shut(t, s)
	})
}

// TestWatcher: events arrive in the order of the changes, across the paths of one Watcher. A
// Watcher that is not read learns that it has missed events.
func TestWatcher(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s, _ := w.session(1, Options{QueueMax: 10})
		ctx := t.Context()
		watcher := s.NewWatcher()
		for _, path := range []string{"/a", "/b"} {
			if err := watcher.Add(ctx, path, api.ContentsChanged|api.LockAcquired, 0); err != nil {
				t.Fatal(err)
			}
		}
		set := func(path string) {
			if _, err := s.Set(ctx, path, nil, api.AnyGeneration, api.SetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			set("/b")
			set("/a")
		}
		for i := range 8 {
			v, err := watcher.Next(ctx)
			if err != nil || v.Path != []string{"/b", "/a"}[i%2] {
				t.Errorf("event %d: %+v %v", i, v, err)
			}
		}
		for range 15 {
			set("/a")
		}
		time.Sleep(time.Second)
		if v, err := watcher.Next(ctx); err != nil || v.Kind != api.FailedOver {
			t.Errorf("missed: %+v %v", v, err)
		}
		watcher.Remove("/a")
		time.Sleep(time.Second)
		w.memory.look(func(m *memory) {
			if n := len(m.sessions[s.ID()].watches); n != 1 {
				t.Errorf("%d watches are left", n)
			}
		})
		watcher.Close()
		if _, err := watcher.Next(ctx); !errors.Is(err, ErrWatcherClosed) {
			t.Error(err)
		}
		shut(t, s)
		if _, err := s.Watch(ctx, "/a", api.ContentsChanged); !errors.Is(err, api.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestWriteWaitsForCaches: a write waits for the caches of other sessions, and at most for their
// leases.
func TestWriteWaitsForCaches(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		a, _ := w.session(1, Options{})
		b, link := w.session(1, Options{})
		ctx := t.Context()
		gen, err := a.Set(ctx, "/f", []byte("1"), 0, api.SetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := b.Get(ctx, "/f"); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if gen, err = a.Set(ctx, "/f", []byte("2"), gen, api.SetOptions{}); err != nil || time.Since(start) > 50*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if f, err := b.Get(ctx, "/f"); err != nil || string(f.Data) != "2" {
			t.Errorf("%q %v", f.Data, err)
		}
		if cached, ok := b.Cached("/f"); !ok || cached != gen {
			t.Errorf("generation %d is cached, %v; want %d", cached, ok, gen)
		}
		if _, ok := b.Cached("/other"); ok {
			t.Error("what was never read is cached")
		}
		link.setCut(true)
		if f, err := b.Get(ctx, "/f"); err != nil || string(f.Data) != "2" {
			t.Errorf("from the cache: %q %v", f.Data, err)
		}
		start = time.Now()
		if _, err = a.Set(ctx, "/f", []byte("3"), gen, api.SetOptions{}); err != nil || time.Since(start) > 2100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, ok := b.cache.get("/f"); ok {
			t.Error("still cached")
		}
		if _, ok := b.Cached("/f"); ok {
			t.Error("the generation of what is no more believed in")
		}
		link.setCut(false)
		shut(t, a, b)
	})
}

// TestAcquireOfUnknownOutcome: a lock whose Acquire has an unknown outcome does not stay held.
func TestAcquireOfUnknownOutcome(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s, link := w.session(1, Options{})
		link.mu.Lock()
		link.delay = 200 * time.Millisecond
		link.mu.Unlock()
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(link.roll().before))
			l, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{})
			cancel()
			if err == nil {
				if err = l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		time.Sleep(5 * time.Second)
		w.memory.look(func(m *memory) {
			if m.files["/l"].mode != 0 {
				t.Error("the lock stayed taken")
			}
		})
		shut(t, s)
	})
}

// lossyService is a Service that loses the answers to Set. made is set if the requests arrive.
type lossyService struct {
	api.Service
	made bool
}

func (d *lossyService) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	if d.made {
		_, _ = d.Service.Set(ctx, path, data, gen, o)
	}
	return 0, api.ErrOutcomeUnknown
}

type dialTo struct{ api.Service }

func (d dialTo) Dial(context.Context, string) (Peer, error) { return Peer{Service: d.Service}, nil }

// TestEphemeralOfUnknownOutcome: an ephemeral file identifies its session, and its content
// identifies the Set.
func TestEphemeralOfUnknownOutcome(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		d := &lossyService{Service: w.memory}
		c, err := NewClient(Config{Locator: Addresses{"here"}, Dialer: dialTo{d}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Open(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		o := api.SetOptions{Ephemeral: true}
		set := func(data string) (uint64, error) { return s.Set(t.Context(), "/e", []byte(data), 0, o) }
		if _, err := set("new"); !errors.Is(err, api.ErrOutcomeUnknown) {
			t.Errorf("a file that was not made: %v", err)
		}
		d.made = true
		made, err := set("new")
		if err != nil || made == 0 {
			t.Errorf("a file that was made: %d, %v", made, err)
		}
		if _, err := set("other"); !errors.Is(err, api.ErrOutcomeUnknown) {
			t.Errorf("a file that was there before: %v", err)
		}
		shut(t, s)
	})
}

func TestTwoLocksOfOnePath(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s, _ := w.session(1, Options{Name: "me"})
		o, _ := w.session(1, Options{})
		ctx := t.Context()
		l, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var locked *api.LockedError
		if _, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{}); !errors.As(err, &locked) || locked.Holder != s.ID() {
			t.Error(err)
		}
		if _, err := o.Acquire(ctx, "/l", api.Shared, LockOptions{Try: true}); !errors.Is(err, api.ErrLocked) {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		if _, err := o.Acquire(short, "/l", api.Shared, LockOptions{}); !errors.Is(err, api.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		go func() {
			time.Sleep(time.Minute)
			_ = l.Release(ctx)
		}()
		start := time.Now()
		m, err := o.Acquire(ctx, "/l", api.Shared, LockOptions{})
		if err != nil || time.Since(start).Round(time.Second) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		n, err := s.Acquire(ctx, "/l", api.Shared, LockOptions{})
		if err != nil || n.Generation() != m.Generation() || !n.Held() || !m.Held() {
			t.Error(err)
		}
		if l.Held() {
			t.Error("held after Release")
		}
		shut(t, s, o)
	})
}

// BenchmarkHeld measures Held, which reads a clock once.
func BenchmarkHeld(b *testing.B) {
	s := &Session{clock: timing.SystemClock()}
	s.end.Store(int64(time.Hour))
	l := &Lock{s: s}
	for b.Loop() {
		if !l.Held() {
			b.Fatal("not held")
		}
	}
}

func BenchmarkCachedGet(b *testing.B) {
	c := newCache(10, 1<<20, func() bool { return true })
	f := api.File{Stat: api.Stat{Path: "/f"}, Data: make([]byte, 100)}
	c.finish(c.begin("/f", false), &f, api.CachePermission{OK: true})
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := c.get("/f"); !ok {
			b.Fatal("not cached")
		}
	}
}

// rejectingDialer is a Dialer that is always rejected.
type rejectingDialer struct{ dials atomic.Int64 }

func (r *rejectingDialer) Dial(context.Context, string) (Peer, error) {
	r.dials.Add(1)
	return Peer{}, fmt.Errorf("%w: the token was revoked", ErrRefused)
}

// TestRejectedClient: a rejected client gets the error at once, without retries.
func TestRejectedClient(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		r := &rejectingDialer{}
		c, err := NewClient(Config{Locator: Addresses{"here"}, Dialer: r})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		_, err = c.Get(t.Context(), "/f")
		var away *UnreachableError
		if !errors.Is(err, ErrRefused) || !errors.As(err, &away) || errors.Is(err, api.ErrNotReady) || !errors.Is(err, ErrUnreachable) {
			t.Errorf("got %v", err)
		}
		if n := r.dials.Load(); n != 1 || time.Since(began) > dialStagger {
			t.Errorf("%d dials in %v", n, time.Since(began))
		}
	})
}
