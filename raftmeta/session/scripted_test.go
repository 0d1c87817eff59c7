package session

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// scripted is a leader whose answers the test chooses. It counts the calls of each method, and is
// its own Dialer. A nil field means the answer of a leader without news.
type scripted struct {
	api.Service
	alive   func(n int, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error))
	get     func(ctx context.Context, n int) (api.File, api.CachePermission, error)
	stale   func(ctx context.Context, n int) error
	set     func(n int) (uint64, error)
	acquire func(ctx context.Context, n int, wait, delay time.Duration) error
	release func(n int) error
	watch   func(n int, path string, kinds api.EventKind, gen uint64) error

	mu    sync.Mutex
	calls map[string]int
}

// call counts a call of a method, and returns its number, from 1.
func (s *scripted) call(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[method]++
	return s.calls[method]
}

// count returns the number of calls of a method.
func (s *scripted) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

func (s *scripted) Dial(context.Context, string) (Peer, error) {
	s.call("Dial")
	return Peer{Service: s, Close: func() error { s.call("close"); return nil }}, nil
}

func (s *scripted) OpenSession(context.Context, string, time.Duration) (api.SessionID, time.Duration, error) {
	s.call("OpenSession")
	return 1, 2 * time.Second, nil
}

func (s *scripted) CloseSession(context.Context, api.SessionID) error {
	s.call("CloseSession")
	return nil
}

func (s *scripted) KeepAlive(_ context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	n := s.call("KeepAlive")
	if s.alive != nil {
		s.alive(n, req, done)
	} else {
		extend(req, done)
	}
}

// extend answers a KeepAlive with a lease of 2 s after its Hang.
func extend(req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	answer := func() {
		done(api.KeepAliveResponse{Term: 1, First: req.Acked + 1, Lease: req.Hang + 2*time.Second}, nil)
	}
	if req.Hang == 0 {
		answer()
		return
	}
	time.AfterFunc(req.Hang, answer)
}

func (s *scripted) Get(ctx context.Context, path string, _ api.SessionID) (api.File, api.CachePermission, error) {
	n := s.call("Get")
	if s.get == nil {
		return api.File{Stat: api.Stat{Path: path, Generation: 1}}, api.CachePermission{}, nil
	}
	return s.get(ctx, n)
}

func (s *scripted) GetStale(ctx context.Context, _ string) (api.File, error) {
	n := s.call("GetStale")
	if s.stale == nil {
		return api.File{}, nil
	}
	return api.File{}, s.stale(ctx, n)
}

func (s *scripted) Set(context.Context, string, []byte, uint64, api.SetOptions) (uint64, error) {
	n := s.call("Set")
	if s.set == nil {
		return 77, nil
	}
	return s.set(n)
}

func (s *scripted) Delete(context.Context, string, uint64, api.SetOptions) error {
	_, err := s.set(s.call("Set"))
	return err
}

func (s *scripted) SetACL(context.Context, string, string, api.SetOptions) (uint64, error) {
	return s.set(s.call("Set"))
}

func (s *scripted) Acquire(ctx context.Context, _ api.SessionID, path string, mode api.Mode, wait, delay time.Duration) (api.Grant, error) {
	n := s.call("Acquire")
	if s.acquire != nil {
		if err := s.acquire(ctx, n, wait, delay); err != nil {
			return api.Grant{}, err
		}
	}
	return api.Grant{Sequencer: api.Sequencer{Path: path, Mode: mode, LockGeneration: uint64(n)}, Hold: uint64(n)}, nil
}

func (s *scripted) Release(context.Context, api.SessionID, string, uint64) error {
	n := s.call("Release")
	if s.release == nil {
		return nil
	}
	return s.release(n)
}

func (s *scripted) Watch(_ context.Context, _ api.SessionID, path string, kinds api.EventKind, gen uint64) (uint64, error) {
	n := s.call("Watch")
	if s.watch != nil {
		if err := s.watch(n, path, kinds, gen); err != nil {
			return 0, err
		}
	}
	return uint64(n), nil
}

func (s *scripted) Unwatch(context.Context, api.SessionID, string, uint64) error {
	s.call("Unwatch")
	return nil
}

// client returns a Client of the scripted leader, and what it logs.
func (s *scripted) client(t *testing.T, change func(cfg *Config)) (*Client, *bytes.Buffer) {
	t.Helper()
	logs := new(bytes.Buffer)
	cfg := Config{Locator: Addresses{"here"}, Dialer: s, Logger: slog.New(slog.NewTextHandler(logs, nil))}
	if change != nil {
		change(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, logs
}

func (s *scripted) open(t *testing.T, o Options) *Session {
	t.Helper()
	c, _ := s.client(t, nil)
	session, err := c.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// wantCalls compares the number of calls of a method.
func (s *scripted) wantCalls(t *testing.T, what, method string, want int) {
	t.Helper()
	if got := s.count(method); got != want {
		t.Errorf("%s: %d calls of %s, want %d", what, got, method, want)
	}
}

// bursts counts calls made at the same moment.
type bursts struct {
	mu   sync.Mutex
	at   time.Time
	now  int
	most int
}

func (b *bursts) note() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now != b.at {
		b.at, b.now = now, 0
	}
	b.now++
	b.most = max(b.most, b.now)
}

// misled is a server that names another one as the leader, unless it leads.
type misled struct {
	scripted
	hint  string
	leads *leading
}

// leading is the leader that all servers of a test know.
type leading struct {
	mu  sync.Mutex
	now bool
}

func (l *leading) set(now bool) {
	l.mu.Lock()
	l.now = now
	l.mu.Unlock()
}

func (m *misled) err() error {
	m.leads.mu.Lock()
	defer m.leads.mu.Unlock()
	if m.leads.now {
		return nil
	}
	return &api.NotLeaderError{Leader: m.hint, Address: m.hint}
}

func (m *misled) Get(context.Context, string, api.SessionID) (api.File, api.CachePermission, error) {
	return api.File{}, api.CachePermission{}, m.err()
}

func (m *misled) KeepAlive(_ context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	if err := m.err(); err != nil {
		done(api.KeepAliveResponse{}, err)
		return
	}
	extend(req, done)
}

// dialTable is a Dialer of servers by address.
type dialTable map[string]func(ctx context.Context) (Peer, error)

func (d dialTable) Dial(ctx context.Context, addr string) (Peer, error) { return d[addr](ctx) }

// counted records each call of a Service.
type counted struct {
	api.Service
	*bursts
}

func (c counted) Get(ctx context.Context, path string, id api.SessionID) (api.File, api.CachePermission, error) {
	c.note()
	return c.Service.Get(ctx, path, id)
}

func (c counted) KeepAlive(ctx context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	c.note()
	c.Service.KeepAlive(ctx, req, done)
}

// TestHintsAreFollowedTwice: a call follows leader hints without a pause at most twice in a row,
// and not to the same server. KeepAlives do the same.
func TestHintsAreFollowedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		hints map[string]string
		most  int
	}{
		"no leader":  {map[string]string{"a": "", "b": ""}, 1},
		"itself":     {map[string]string{"a": "a", "b": "b"}, 1},
		"each other": {map[string]string{"a": "b", "b": "a"}, 3},
	} {
		for _, keepAlives := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				leads := &leading{now: true}
				b, dials := &bursts{}, dialTable{}
				for addr, hint := range c.hints {
					m := &misled{hint: hint, leads: leads}
					dials[addr] = func(context.Context) (Peer, error) { return Peer{Service: counted{m, b}}, nil }
				}
				client, err := NewClient(Config{Locator: Addresses{"a", "b"}, Dialer: dials, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if keepAlives {
					s, err := client.Open(t.Context(), Options{Grace: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // past the first two KeepAlives
					b.mu.Lock()
					b.most = 0
					b.mu.Unlock()
					leads.set(false)
					<-ctx.Done()
					leads.set(true)
					if err := s.Close(t.Context()); err != nil {
						t.Error(err)
					}
				} else {
					leads.set(false)
					if _, err := client.Get(ctx, "/f"); err == nil {
						t.Error("an answer without a leader")
					}
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.most != c.most {
					t.Errorf("%s, KeepAlives %t: %d calls at once, want %d", name, keepAlives, b.most, c.most)
				}
			})
		}
	}
}

// TestRetrierPaces: pauses double from 25 ms to 1 s, half of each random, and none would end after
// the time limit or the deadline.
func TestRetrierPaces(t *testing.T) {
	for range 200 {
		r := retrier{}
		for i, want := range []time.Duration{25, 50, 100, 200, 400, 800, 1000, 1000} {
			want *= time.Millisecond
			if d := r.next(); d < want/2 || d >= want+want/2 {
				t.Fatalf("pause %d is %v, want about %v", i, d, want)
			}
		}
	}
	wait := func(t *testing.T, r *retrier, ctx context.Context, most time.Duration) {
		t.Helper()
		start, n := time.Now(), 0
		for r.wait(ctx, false) {
			n++
		}
		if d := time.Since(start); n == 0 || d > most || d < most-1500*time.Millisecond || ctx.Err() != nil {
			t.Errorf("%d attempts in %v of %v: %v", n, d, most, ctx.Err())
		}
	}
	synctest.Test(t, func(t *testing.T) {
		wait(t, &retrier{started: time.Now(), most: 10 * time.Second}, t.Context(), 10*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		wait(t, &retrier{started: time.Now(), most: 10 * time.Second}, ctx, 7*time.Second)
		wait(t, &retrier{started: time.Now(), most: 3 * time.Second}, t.Context(), 3*time.Second)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r := retrier{started: time.Now(), most: time.Second}
		if r.wait(ended, false) || r.wait(ended, true) {
			t.Error("another attempt of a call that has ended")
		}
	})
}

// TestAttempts: a call that was not executed is retried. One that may have been is retried only
// where that has the same effect, and its outcome stays unknown if the next attempt is rejected.
// RS4.
func TestAttempts(t *testing.T) {
	set := func(gen uint64) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error {
			made, err := c.Set(ctx, "/f", nil, gen, api.SetOptions{})
			if err == nil && made != 77 {
				return fmt.Errorf("generation %d was made", made)
			}
			return err
		}
	}
	remove := func(gen uint64) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error { return c.Delete(ctx, "/f", gen, api.SetOptions{}) }
	}
	acl := func(ctx context.Context, c *Client) error {
		_, err := c.SetACL(ctx, "/f", "x", api.SetOptions{})
		return err
	}
	differs := &api.GenerationError{Path: "/f", Want: 5, Got: 6}
	type errs []error
	for _, c := range []struct {
		name     string
		call     func(context.Context, *Client) error
		errs     errs
		attempts int
		want     error
	}{
		{"set", set(5), nil, 1, nil},
		{"set of anything, not made", set(api.AnyGeneration), errs{api.ErrNotReady}, 2, nil},
		{"set of anything, unknown", set(api.AnyGeneration), errs{api.ErrOutcomeUnknown}, 1, api.ErrOutcomeUnknown},
		{"set of a new file, not made", set(0), errs{api.ErrNotReady, api.ErrNotReady}, 3, nil},
		{"set of a new file, unknown", set(0), errs{api.ErrOutcomeUnknown}, 1, api.ErrOutcomeUnknown},
		{"set of a generation, unknown", set(5), errs{api.ErrOutcomeUnknown}, 2, nil},
		{"set of a generation, unknown and rejected", set(5), errs{api.ErrOutcomeUnknown, differs}, 2, api.ErrOutcomeUnknown},
		{"set of a generation, unknown and not made", set(5), errs{api.ErrOutcomeUnknown, api.ErrNotReady, differs}, 3, api.ErrOutcomeUnknown},
		{"set of a generation, rejected", set(5), errs{differs}, 1, api.ErrGeneration},
		{"set by a server that stops", set(5), errs{api.ErrClosed}, 2, nil},
		{"delete of anything, unknown", remove(api.AnyGeneration), errs{api.ErrOutcomeUnknown}, 1, api.ErrOutcomeUnknown},
		{"delete of a generation, unknown", remove(5), errs{api.ErrOutcomeUnknown}, 2, nil},
		{"delete of a generation, unknown and rejected", remove(5), errs{api.ErrOutcomeUnknown, api.ErrNotFound}, 2, api.ErrOutcomeUnknown},
		{"delete, rejected", remove(5), errs{api.ErrNotFound}, 1, api.ErrNotFound},
		{"acl, not made", acl, errs{api.ErrNotReady}, 2, nil},
		{"acl, unknown", acl, errs{api.ErrOutcomeUnknown}, 1, api.ErrOutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{set: func(n int) (uint64, error) {
				if n <= len(c.errs) {
					return 0, c.errs[n-1]
				}
				return 77, nil
			}}
			client, _ := s.client(t, nil)
			defer client.Close()
			err := c.call(t.Context(), client)
			if !isError(err, c.want) || isError(err, api.ErrOutcomeUnknown) != (c.want == api.ErrOutcomeUnknown) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			s.wantCalls(t, c.name, "Set", c.attempts)
		})
	}
}
