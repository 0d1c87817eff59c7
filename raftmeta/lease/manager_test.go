package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// soloReplica is a group of one with an instantaneous log, in which the test sets the term.
type soloReplica struct {
	t       *testing.T
	machine *fsm.Machine
	term    atomic.Uint64
	// commands counts the commands of each operation.
	commands [fsm.OpNewest + 1]atomic.Int64

	mu    sync.Mutex
	index uint64
	// While held, commands wait in queue.
	held  bool
	queue []func()
}

func newSolo(t *testing.T) (*soloReplica, *Service) {
	r := &soloReplica{t: t, machine: fsm.NewMachine(func(err error) { t.Error(err) })}
	v := NewService(r, r.machine, NewClock(), nil)
	r.lead(v, 1)
	t.Cleanup(v.Follow)
	return r, v
}

func (r *soloReplica) lead(v *Service, term uint64) {
	r.term.Store(term)
	v.Lead(term)
}

func (r *soloReplica) Usable() error                              { return nil }
func (r *soloReplica) Leading() uint64                            { return r.term.Load() }
func (r *soloReplica) NotLeading() error                          { return &api.NotLeaderError{Leader: "n2"} }
func (r *soloReplica) Verify(ctx context.Context) (uint64, error) { return r.term.Load(), ctx.Err() }
func (r *soloReplica) CheckDisk() error                           { return nil }

func (r *soloReplica) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	r.commands[c.Op].Add(1)
	data := c.Encode()
	answer := make(chan fsm.Result, 1)
	apply := func() {
		r.index++
		answer <- r.machine.Apply(fsm.Entry{Index: r.index, Term: r.term.Load(), Command: data})
	}
	r.mu.Lock()
	if r.held {
		r.queue = append(r.queue, apply)
	} else {
		apply()
	}
	r.mu.Unlock()
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return fsm.Result{}, fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, ctx.Err())
	}
}

// hold keeps commands from being applied until release.
func (r *soloReplica) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

func (r *soloReplica) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, apply := range r.queue {
		apply()
	}
	r.held, r.queue = false, nil
}

func openFor(t *testing.T, v *Service, lease time.Duration) api.SessionID {
	t.Helper()
	id, _, err := v.OpenSession(t.Context(), "test", lease)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// keepAlive makes a KeepAlive and waits for its answer.
func keepAlive(v *Service, req api.KeepAliveRequest) (api.KeepAliveResponse, error) {
	got := make(chan simAnswer, 1)
	v.KeepAlive(context.Background(), req, func(resp api.KeepAliveResponse, err error) { got <- simAnswer{resp, err} })
	a := <-got
	return a.resp, a.err
}

func kinds(events []api.Event) (k []api.EventKind) {
	for _, e := range events {
		k = append(k, e.Kind)
	}
	return k
}

// TestKeepAlive follows one session: answers at two thirds of the lease, at once for events, no
// extension while events are not acknowledged, and expiry.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		const lease = 3 * time.Second
		s := openFor(t, v, lease)
		start := time.Now()
		a, err := keepAlive(v, api.KeepAliveRequest{Session: s, Hang: time.Hour})
		if err != nil || time.Since(start) != 0 || a.Term != 1 || a.Lease != lease || len(a.Events) != 0 {
			t.Fatalf("first: %+v, %v after %v", a, err, time.Since(start))
		}
		a, err = keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Hang: time.Hour})
		if took := time.Since(start); err != nil || took.Round(time.Millisecond) != 2*time.Second || a.Lease.Round(time.Millisecond) != 5*time.Second {
			t.Fatalf("second: %+v, %v after %v", a, err, took)
		}
		if _, err := v.Watch(t.Context(), s, "/d", api.AllEvents, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Watch(t.Context(), s, "/d/f", api.AllEvents, 0); err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		go func() {
			time.Sleep(time.Second)
			if _, err := v.Set(context.Background(), "/d/f", nil, 0, api.SetOptions{}); err != nil {
				t.Error(err)
			}
		}()
		a, err = keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Hang: time.Hour})
		if took := time.Since(start); err != nil || took != time.Second || a.First != 1 || len(a.Events) == 0 || a.Lease != took+lease {
			t.Fatalf("events: %+v, %v after %v", a, err, took)
		}
		time.Sleep(time.Second)
		b, err := keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Hang: time.Hour})
		if err != nil || b.Lease != 2*time.Second || len(b.Events) < len(a.Events) || b.First != 1 {
			t.Fatalf("not acknowledged: %+v, %v", b, err)
		}
		want := []api.EventKind{api.ContentsChanged, api.ChildAdded}
		if got := kinds(b.Events); !slices.Equal(got, want) {
			t.Fatalf("events %v, want %v: %+v", got, want, b.Events)
		}
		if a, err = keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Acked: 2}); err != nil || a.Lease != lease {
			t.Fatalf("acknowledged: %+v, %v", a, err)
		}
		time.Sleep(lease + time.Millisecond)
		if _, err = keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Acked: 2}); !errors.Is(err, api.ErrNoSession) {
			t.Fatalf("after the lease: %v", err)
		}
	})
}

// TestKeepAliveCallerGone: a request whose caller is gone neither extends nor shortens the lease,
// and a later request counts.
func TestKeepAliveCallerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		const lease = 3 * time.Second
		for _, returns := range []bool{false, true} {
			s := openFor(t, v, lease)
			if _, err := v.Set(t.Context(), "/f", nil, 0, api.SetOptions{Session: s, Ephemeral: true}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			caller, leave := context.WithCancel(t.Context())
			got := make(chan error, 2)
			v.KeepAlive(t.Context(), api.KeepAliveRequest{Session: s, Term: 1, Hang: time.Hour, Caller: caller},
				func(_ api.KeepAliveResponse, err error) { got <- err })
			time.Sleep(time.Second)
			leave()
			if err := <-got; !errors.Is(err, api.ErrSuperseded) || len(got) > 0 {
				t.Errorf("the request of who is gone: %v", err)
			}
			want := lease
			if returns {
				if a, err := keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1}); err != nil || a.Lease != lease {
					t.Errorf("who came again: %+v, %v", a, err)
				}
				want += time.Second
			}
			time.Sleep(want - time.Since(start) - time.Millisecond)
			if _, err := v.Stat(t.Context(), "/f"); err != nil {
				t.Errorf("came again %v, before the lease is over: %v", returns, err)
			}
			time.Sleep(2 * time.Millisecond)
			if _, err := v.Stat(t.Context(), "/f"); !errors.Is(err, api.ErrNotFound) {
				t.Errorf("came again %v, when the lease is over: %v", returns, err)
			}
		}
	})
}

// pausedClock is the clock of a process that can be paused: time passes, and timers do not fire.
type pausedClock struct {
	systemClock
	paused atomic.Int64
}

func (c *pausedClock) Now() time.Duration {
	return c.systemClock.Now() + time.Duration(c.paused.Load())
}

// TestPausedLeader: a leader that was paused for longer than the leases, and still leads, expires
// no session that has sent a KeepAlive meanwhile.
func TestPausedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &soloReplica{t: t, machine: fsm.NewMachine(func(err error) { t.Error(err) })}
		clock := &pausedClock{systemClock: systemClock{time.Now()}}
		v := NewService(r, r.machine, clock, nil)
		r.lead(v, 1)
		defer v.Follow()
		alive, silent := openFor(t, v, 2*time.Second), openFor(t, v, 2*time.Second)
		time.Sleep(time.Second)
		clock.paused.Add(int64(10 * time.Second))
		time.Sleep(2 * stallTick) // the timer fires
		req := api.KeepAliveRequest{Session: alive, Term: 1, Hang: time.Minute}
		for range 10 {
			resp, err := keepAlive(v, req)
			if err != nil {
				t.Fatalf("after the pause, at %v: %v", clock.Now(), err)
			}
			if resp.Lease <= 0 {
				t.Fatalf("after the pause the lease is %v", resp.Lease)
			}
		}
		if _, err := keepAlive(v, api.KeepAliveRequest{Session: silent, Term: 1}); !errors.Is(err, api.ErrNoSession) {
			t.Errorf("who does not ask is not expired: %v", err)
		}
	})
}

// gatedReplica completes a verification when the test permits it.
type gatedReplica struct {
	*soloReplica
	asked, gate chan struct{}
}

func (r *gatedReplica) Verify(ctx context.Context) (uint64, error) {
	r.asked <- struct{}{}
	select {
	case <-r.gate:
	case <-ctx.Done():
	}
	return r.soloReplica.Verify(ctx)
}

// TestPausedVerification: a leader that was paused during a verification grants nothing beyond what
// the verification proves, because another server may lead since.
func TestPausedVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &gatedReplica{
			soloReplica: &soloReplica{t: t, machine: fsm.NewMachine(func(err error) { t.Error(err) })},
			asked:       make(chan struct{}, 10), gate: make(chan struct{}, 10),
		}
		clock := &pausedClock{systemClock: systemClock{time.Now()}}
		v := NewService(r, r.machine, clock, nil)
		r.lead(v, 1)
		defer v.Follow()
		id := openFor(t, v, 2*time.Second)
		got := make(chan simAnswer, 1)
		v.KeepAlive(context.Background(), api.KeepAliveRequest{Session: id, Term: 1},
			func(resp api.KeepAliveResponse, err error) { got <- simAnswer{resp, err} })
		<-r.asked
		synctest.Wait()
		clock.paused.Add(int64(3200 * time.Millisecond)) // longer than the lease
		time.Sleep(2 * stallTick)                        // the lease manager's timer fires
		r.gate <- struct{}{}                             // completes the verification from before the pause
		synctest.Wait()
		select {
		case a := <-got:
			if a.err == nil && a.resp.Lease > 2*time.Second {
				t.Fatalf("the lease is %v by a question of before the pause", a.resp.Lease)
			}
		default: // it verifies again
			if len(r.asked) == 0 {
				t.Fatal("neither an answer nor another question")
			}
		}
	})
}

func TestKeepAliveSupersededAndDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := newSolo(t)
		s := openFor(t, v, time.Minute)
		got := make(chan error, 2)
		done := func(_ api.KeepAliveResponse, err error) { got <- err }
		req := api.KeepAliveRequest{Session: s, Term: 1, Hang: time.Minute}
		v.KeepAlive(t.Context(), req, done)
		v.KeepAlive(t.Context(), req, done)
		if err := <-got; !errors.Is(err, api.ErrSuperseded) {
			t.Errorf("the first: %v", err)
		}
		r.term.Store(0)
		v.Follow()
		var leader *api.NotLeaderError
		if err := <-got; !errors.As(err, &leader) || leader.Leader != "n2" {
			t.Errorf("the second: %v", err)
		}
		if _, err := v.Set(t.Context(), "/f", nil, 0, api.SetOptions{}); !errors.As(err, &leader) {
			t.Errorf("set: %v", err)
		}
		if _, err := v.GetStale(t.Context(), "/f"); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("stale get: %v", err)
		}
		// A new leader knows the session, and reports the failover.
		r.lead(v, 3)
		a, err := keepAlive(v, req)
		if err != nil || a.Term != 3 || a.First != 1 || !slices.Equal(kinds(a.Events), []api.EventKind{api.FailedOver}) {
			t.Errorf("after a failover: %+v, %v", a, err)
		}
	})
}

// TestExpireTogether has 10,000 sessions expire together.
func TestExpireTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := newSolo(t)
		const sessions = 10_000
		for i := range sessions {
			s := openFor(t, v, time.Second)
			if _, err := v.Set(t.Context(), fmt.Sprint("/servers/", i), nil, 0, api.SetOptions{Session: s, Ephemeral: true}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		n := r.commands[fsm.OpExpireSession].Load()
		if st, err := v.Stat(t.Context(), "/servers"); err != nil || st.Children != 0 || n > sessions/fsm.BatchMax+expirersMax {
			t.Errorf("%+v, %v, %d commands", st, err, n)
		}
	})
}

// caching opens a session that caches /f.
func caching(t *testing.T, v *Service, lease time.Duration) api.SessionID {
	t.Helper()
	s := openFor(t, v, lease)
	if _, perm, err := v.Get(t.Context(), "/f", s); err != nil || !perm.OK {
		t.Fatalf("get: %+v, %v", perm, err)
	}
	return s
}

// TestWriteWaitsForCaches has a write wait for an acknowledgement, for a dead session's lease, and
// for nothing.
func TestWriteWaitsForCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := newSolo(t)
		set := func() time.Duration {
			start := time.Now()
			if _, err := v.Set(t.Context(), "/f", nil, api.AnyGeneration, api.SetOptions{}); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		set()
		s := caching(t, v, 10*time.Second)
		go func() {
			a, err := keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Hang: time.Minute})
			if err != nil || !slices.Equal(kinds(a.Events), []api.EventKind{api.CacheInvalid}) || a.Events[0].Path != "/f" {
				t.Errorf("%+v, %v", a, err)
			}
			if _, perm, err := v.Get(context.Background(), "/f", s); err != nil || perm.OK {
				t.Errorf("permission to cache during a write: %v", err)
			}
			time.Sleep(time.Second)
			_, err = keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Acked: a.First})
			if err != nil {
				t.Error(err)
			}
		}()
		if took := set(); took != time.Second {
			t.Errorf("a write waited %v for an acknowledgement", took)
		}
		if took := set(); took != 0 {
			t.Errorf("a write waited %v for nobody", took)
		}
		caching(t, v, 5*time.Second)
		time.Sleep(time.Second)
		if took := set(); took != 4*time.Second {
			t.Errorf("a write waited %v for a dead session", took)
		}
		// A new leader does not know which sessions cache what its predecessor marked.
		caching(t, v, 20*time.Second)
		r.lead(v, 2)
		time.Sleep(time.Second)
		if took := set(); took != 19*time.Second {
			t.Errorf("a write waited %v after a failover", took)
		}
		synctest.Wait() // until the dead have been expired
		s = caching(t, v, 20*time.Second)
		r.lead(v, 3)
		if _, err := keepAlive(v, api.KeepAliveRequest{Session: s, Term: 3}); err != nil {
			t.Fatal(err)
		}
		if took := set(); took != 0 {
			t.Errorf("a write waited %v for a session that knows the term", took)
		}
	})
}

// TestWriteOfUnknownOutcome cancels a write that is in the log: no session may cache the file until the
// outcome is decided.
func TestWriteOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := newSolo(t)
		if _, err := v.Set(t.Context(), "/f", nil, 0, api.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		s := openFor(t, v, time.Minute)
		r.hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Set(ctx, "/f", []byte("new"), api.AnyGeneration, api.SetOptions{}); !errors.Is(err, api.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if f, perm, err := v.Get(t.Context(), "/f", s); err != nil || perm.OK || len(f.Data) != 0 {
			t.Errorf("in doubt: %q, %+v, %v", f.Data, perm, err)
		}
		r.release()
		synctest.Wait()
		if f, perm, err := v.Get(t.Context(), "/f", s); err != nil || !perm.OK || string(f.Data) != "new" {
			t.Errorf("settled: %q, %+v, %v", f.Data, perm, err)
		}
	})
}

// TestWatchOfWhatHasChanged watches a file that has changed since the caller read it: it was
// written, deleted, or deleted and created again.
func TestWatchOfWhatHasChanged(t *testing.T) {
	for name, change := range map[string]func(v *Service) error{
		"nothing": func(*Service) error { return nil },
		"written": func(v *Service) error {
			_, err := v.Set(context.Background(), "/f", []byte("y"), api.AnyGeneration, api.SetOptions{})
			return err
		},
		"deleted": func(v *Service) error {
			return v.Delete(context.Background(), "/f", api.AnyGeneration, api.SetOptions{})
		},
		"made again": func(v *Service) error {
			err := v.Delete(context.Background(), "/f", api.AnyGeneration, api.SetOptions{})
			if err == nil {
				_, err = v.Set(context.Background(), "/f", nil, 0, api.SetOptions{})
			}
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, v := newSolo(t)
			gen, err := v.Set(t.Context(), "/f", []byte("x"), 0, api.SetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s := openFor(t, v, time.Minute)
			if _, err := keepAlive(v, api.KeepAliveRequest{Session: s}); err != nil {
				t.Fatal(err)
			}
			if err := change(v); err != nil {
				t.Fatal(err)
			}
			if _, err := v.Watch(t.Context(), s, "/f", api.ContentsChanged, gen); err != nil {
				t.Fatal(err)
			}
			a, err := keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Hang: time.Second})
			var want []api.EventKind
			if name != "nothing" {
				want = []api.EventKind{api.ContentsChanged}
			}
			if err != nil || !slices.Equal(kinds(a.Events), want) {
				t.Errorf("%s: events %v, %v", name, a.Events, err)
			}
		})
	}
}

// TestEventsOverflow queues more events than the limit: they are replaced by one.
func TestEventsOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		if _, err := v.Set(t.Context(), "/f", nil, 0, api.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		s := caching(t, v, time.Minute)
		if _, err := v.Watch(t.Context(), s, "/g", api.AllEvents, 0); err != nil {
			t.Fatal(err)
		}
		for range queueMax + 1 {
			if _, err := v.Set(t.Context(), "/g", nil, api.AnyGeneration, api.SetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		a, err := keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1})
		if err != nil || a.First != queueMax+1 || !slices.Equal(kinds(a.Events), []api.EventKind{api.FailedOver}) {
			t.Fatalf("%d events from %d, %v", len(a.Events), a.First, err)
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			if _, err := v.Set(context.Background(), "/f", nil, api.AnyGeneration, api.SetOptions{}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		select {
		case <-written:
			t.Error("a write did not wait for a session that may have the file in its cache")
		default:
		}
		if _, err := keepAlive(v, api.KeepAliveRequest{Session: s, Term: 1, Acked: a.First}); err != nil {
			t.Error(err)
		}
		<-written
		k, _, _ := v.current()
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.mu.ledger.queued != 0 || k.mu.caches.registered != 0 || k.mu.watches.count != 0 || len(k.mu.caches.files) != 0 {
			t.Errorf("left: %d events, %d registrations, %d watches, %d files", k.mu.ledger.queued, k.mu.caches.registered, k.mu.watches.count, len(k.mu.caches.files))
		}
	})
}

// TestAcquireWaits has sessions queue for a lock.
func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := newSolo(t)
		s := openFor(t, v, time.Minute)
		g, err := v.Acquire(t.Context(), s, "/l", api.Exclusive, 0, 5*time.Second)
		if err != nil || v.CheckSequencer(t.Context(), g.Sequencer) != nil {
			t.Fatalf("%+v, %v", g, err)
		}
		if again, err := v.Acquire(t.Context(), s, "/l", api.Exclusive, 0, 5*time.Second); err != nil || again != g {
			t.Errorf("again: %+v, %v", again, err)
		}
		other := openFor(t, v, time.Minute)
		var locked *api.LockedError
		start := time.Now()
		if _, err := v.Acquire(t.Context(), other, "/l", api.Shared, time.Second, 0); !errors.As(err, &locked) || locked.Holder != s ||
			locked.HolderName != "test" || time.Since(start) != time.Second {
			t.Errorf("a wait: %v after %v", err, time.Since(start))
		}
		if err := v.Delete(t.Context(), "/l", api.AnyGeneration, api.SetOptions{}); !errors.As(err, &locked) {
			t.Errorf("delete of a held lock: %v", err)
		}
		if err := v.Release(t.Context(), s, "/l", g.Hold+1); !errors.Is(err, api.ErrNotHeld) {
			t.Errorf("release of another hold: %v", err)
		}
		const waiting = 50
		var order []int
		var wg sync.WaitGroup
		tries := r.commands[fsm.OpAcquire].Load()
		for i := range waiting {
			time.Sleep(time.Millisecond)
			wg.Go(func() {
				id := openFor(t, v, time.Minute)
				g, err := v.Acquire(t.Context(), id, "/l", api.Exclusive, time.Minute, 0)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // under the lock
				time.Sleep(time.Millisecond)
				if err := v.Release(t.Context(), id, "/l", g.Hold); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := v.Release(t.Context(), s, "/l", g.Hold); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if n := r.commands[fsm.OpAcquire].Load() - tries; !slices.IsSorted(order) || len(order) != waiting || n != 2*waiting {
			t.Errorf("order %v with %d tries", order, n)
		}
		if err := v.CheckSequencer(t.Context(), g.Sequencer); !errors.Is(err, api.ErrStale) {
			t.Errorf("old sequencer: %v", err)
		}
	})
}

// TestAcquireSentTwice has a session wait for a lock over a connection that is dead without the
// server's knowledge, and again over another connection.
func TestAcquireSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		s, other := openFor(t, v, time.Minute), openFor(t, v, time.Minute)
		g, err := v.Acquire(t.Context(), s, "/l", api.Exclusive, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var grants [2]api.Grant
		var wg sync.WaitGroup
		for i := range grants {
			wg.Go(func() {
				var err error
				if grants[i], err = v.Acquire(t.Context(), other, "/l", api.Exclusive, 30*time.Second, 0); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		start := time.Now()
		if err := v.Release(t.Context(), s, "/l", g.Hold); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if d := time.Since(start); grants[0] != grants[1] || d > time.Second {
			t.Errorf("%+v after %v", grants, d)
		}
	})
}

// TestLockDelay expires a session that holds a lock, with a failover during the lock-delay: the new
// leader measures it in full.
func TestLockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, v := newSolo(t)
		s, other := openFor(t, v, time.Second), openFor(t, v, time.Minute)
		g, err := v.Acquire(t.Context(), s, "/l", api.Exclusive, 0, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		time.AfterFunc(6*time.Second, func() { r.lead(v, 2) })
		for {
			_, err := v.Acquire(t.Context(), other, "/l", api.Exclusive, 30*time.Second, 0)
			if err == nil {
				break
			}
			if !errors.Is(err, api.ErrNotReady) {
				t.Fatal(err)
			}
		}
		if took := time.Since(start).Round(time.Millisecond); took != 16*time.Second {
			t.Errorf("the lock was free after %v", took)
		}
		if _, err := v.Set(t.Context(), "/f", nil, api.AnyGeneration, api.SetOptions{Guard: g.Sequencer}); !errors.Is(err, api.ErrStale) {
			t.Errorf("guarded write: %v", err)
		}
	})
}

// TestCloseSession frees at once everything that a session holds.
func TestCloseSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		s := openFor(t, v, time.Minute)
		if _, err := v.Set(t.Context(), "/f", nil, 0, api.SetOptions{Session: s, Ephemeral: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Acquire(t.Context(), s, "/f", api.Exclusive, 0, 0); !errors.Is(err, api.ErrEphemeral) {
			t.Errorf("lock of an ephemeral file: %v", err)
		}
		if _, err := v.Acquire(t.Context(), s, "/l", api.Exclusive, 0, time.Minute); err != nil {
			t.Fatal(err)
		}
		caching(t, v, 3*time.Second) // and dies
		start := time.Now()
		if err := v.CloseSession(t.Context(), s); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("close: %v after %v", err, time.Since(start))
		}
		if err := v.CloseSession(t.Context(), s); err != nil {
			t.Errorf("close again: %v", err)
		}
		if _, err := v.Stat(t.Context(), "/f"); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("ephemeral file: %v", err)
		}
		if st, err := v.Stat(t.Context(), "/l"); err != nil || st.Lock != 0 || len(st.Holders) != 0 {
			t.Errorf("lock: %+v, %v", st, err)
		}
		if _, err := v.Acquire(t.Context(), s, "/l", api.Exclusive, 0, 0); !errors.Is(err, api.ErrNoSession) {
			t.Errorf("acquire: %v", err)
		}
	})
}
