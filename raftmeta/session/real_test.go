package session

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/lease"

	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// NewTimer makes driftClock a raftmeta.Clock.
func (c driftClock) NewTimer(d time.Duration) *time.Timer {
	return time.NewTimer(time.Duration(float64(d)/c.rate) + time.Microsecond)
}

// openGroup opens a group of one.
func openGroup(t testing.TB, dir string, clock lease.Clock) *raftmeta.Group {
	t.Helper()
	g, err := raftmeta.Open(raftmeta.Config{
		Dir: dir, ID: "n1", Clock: clock, Logger: slog.New(slog.DiscardHandler),
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.WaitReady(context.Background()); err != nil {
		t.Fatal(err)
	}
	return g
}

// restarting is the Service of a group that is closed and reopened.
type restarting struct {
	api.Service // the current one's; nil while there is none
	group       *raftmeta.Group
	mu          sync.RWMutex
}

func (r *restarting) dial() (api.Service, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.Service == nil {
		return nil, &api.NotLeaderError{}
	}
	return r.Service, nil
}

// TestRandomSchedulesOfAGroup is TestRandomSchedules with a real leader, a group of one that is
// restarted for failovers.
func TestRandomSchedulesOfAGroup(t *testing.T) {
	seed := testseed.New(t)
	runs := 10 * soak()
	if testing.Short() {
		runs = 2
	}
	for i := range runs {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) { groupSchedule(t, seed+uint64(i), dir) })
		if t.Failed() {
			t.Logf("run %d: STELE_SEED=%d replays it first", i, seed+uint64(i))
			return
		}
	}
}

func groupSchedule(t *testing.T, seed uint64, dir string) {
	rng := rand.New(rand.NewPCG(seed, 0))
	clock := newDriftClock(0.95 + rng.Float64()/10).(driftClock)
	r := &restarting{group: openGroup(t, dir, clock)}
	r.Service = r.group.Service()
	w := worldOf(t, seed, forwardingService{r.dial})
	stop := func() {
		r.mu.Lock()
		r.Service = nil
		r.mu.Unlock()
		if err := r.group.Close(); err != nil {
			t.Error(err)
		}
	}
	w.end = stop
	w.failover = func(after time.Duration) {
		stop()
		time.Sleep(after)
		g := openGroup(t, dir, clock)
		r.mu.Lock()
		r.group, r.Service = g, g.Service()
		r.mu.Unlock()
	}
	schedule3(t, seed, rng, w)
}

// callerOf records the caller of a KeepAlive.
type callerOf struct {
	api.Service
	caller chan context.Context
}

func (c callerOf) KeepAlive(_ context.Context, req api.KeepAliveRequest, _ func(api.KeepAliveResponse, error)) {
	c.caller <- req.Caller
}

// TestCallerEndsWithConnection: the lock service is notified when the caller of a pending KeepAlive
// is gone.
func TestCallerEndsWithConnection(t *testing.T) {
	srv, err := rpc.NewServer(rpc.ServerConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := callerOf{caller: make(chan context.Context, 1)}
	api.ServeCurrent(srv, func(*rpc.Call, bool) (api.Service, error) { return s, nil })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	conn, err := rpc.Dial(t.Context(), l.Addr().String(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	api.Remote(conn).KeepAlive(t.Context(), api.KeepAliveRequest{Session: 1, Hang: time.Hour}, func(api.KeepAliveResponse, error) {})
	caller := <-s.caller
	if err := caller.Err(); err != nil {
		t.Errorf("while the connection is there: %v", err)
	}
	conn.Close()
	select {
	case <-caller.Done():
	case <-time.After(10 * time.Second):
		t.Error("the connection is closed, and the caller is not gone")
	}
}

// TestOverTCP covers the whole path: rpc, the wire format, and a group, through a restart of both
// at the same address.
func TestOverTCP(t *testing.T) {
	dir := t.TempDir()
	listen := func(addr string) net.Listener {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen("127.0.0.1:0")
	serve := func(l net.Listener) (stop func()) {
		g := openGroup(t, dir, nil)
		srv, err := rpc.NewServer(rpc.ServerConfig{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		api.ServeCurrent(srv, func(*rpc.Call, bool) (api.Service, error) { return g.Service(), nil })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = srv.Serve(l)
		}()
		return func() {
			srv.Close()
			<-done
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	stop := serve(l)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// No server listens at the first address; it is skipped.
	c, err := NewClient(Config{Locator: Addresses{"127.0.0.1:1", l.Addr().String()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string) *Session {
		s, err := c.Open(ctx, Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := open("a"), open("b")
	lock, err := a.Acquire(ctx, "/lock", api.Exclusive, LockOptions{Delay: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Watch(ctx, "/dir", api.AllEvents)
	if err != nil {
		t.Fatal(err)
	}
	gen, err := a.Set(ctx, "/dir/f", []byte("1"), 0, api.SetOptions{Guard: lock.Sequencer()})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[api.EventKind]bool{}
	for !seen[api.ChildAdded] {
		v, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		seen[v.Kind] = true
	}
	read := func(s *Session, want string) {
		t.Helper()
		if f, err := s.Get(ctx, "/dir/f"); err != nil || string(f.Data) != want {
			t.Fatalf("read %q, want %q (%v)", f.Data, want, err)
		}
	}
	read(b, "1")
	if b.cache.len() != 1 {
		t.Error("not cached")
	}
	if gen, err = a.Set(ctx, "/dir/f", []byte("2"), gen, api.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	read(b, "2")
	stop()
	stop = serve(listen(l.Addr().String()))
	for v := (api.Event{}); v.Kind != api.FailedOver; {
		if v, err = w.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	read(b, "2")
	if err := c.CheckSequencer(ctx, lock.Sequencer()); err != nil || a.Err() != nil {
		t.Errorf("after the restart: %v %v", err, a.Err())
	}
	if _, err := b.Set(ctx, "/dir/f", []byte("3"), gen, api.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	read(a, "3")
	if st, err := c.Stat(ctx, "/lock"); err != nil || len(st.Holders) != 1 || st.Holders[0] != a.ID() {
		t.Errorf("%+v %v", st, err)
	}
	for _, s := range []*Session{a, b} {
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if all, err := c.List(ctx, "/"); err != nil || len(all) != 2 || all[1].Lock != 0 {
		t.Errorf("%+v %v", all, err)
	}
	_ = c.Close()
	stop()
}
