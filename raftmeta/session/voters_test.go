package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/api"
)

// voters are several servers in front of one memory. One of them leads, and the others name it.
type voters struct {
	t      *testing.T
	memory *memory
	seats  []*seat
	wg     sync.WaitGroup

	mu        sync.Mutex
	leader    *seat // nil: none now
	redirects int   // calls to a server that does not lead
}

// seat is one server, and the link to it.
type seat struct {
	v    *voters
	addr string

	mu       sync.Mutex
	silent   bool          // messages to it are lost
	restored chan struct{} // closed when silent is reset
	hint     *seat         // the leader that it names, if not the real one
}

func newVoters(t *testing.T, n int) *voters {
	v := &voters{t: t, memory: newMemory(newDriftClock(1))}
	for i := range n {
		v.seats = append(v.seats, &seat{v: v, addr: fmt.Sprintf("v%d", i)})
	}
	v.leader = v.seats[0]
	return v
}

func (v *voters) close() {
	v.memory.close()
	v.wg.Wait()
}

func (v *voters) client() *Client {
	var addrs Addresses
	for _, s := range v.seats {
		addrs = append(addrs, s.addr)
	}
	c, err := NewClient(Config{Locator: addrs, Dialer: v, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		v.t.Fatal(err)
	}
	return c
}

// elect makes another seat the leader, after a time without one.
func (v *voters) elect(to *seat, after time.Duration) {
	v.lead(nil)
	v.memory.failover(after)
	v.lead(to)
}

func (v *voters) lead(s *seat) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leader = s
}

// service returns the Service that a seat offers now.
func (s *seat) service() (api.Service, error) {
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	leader := s.v.leader
	if leader == s {
		return s.v.memory, nil
	}
	s.v.redirects++
	if s.hint != nil {
		leader = s.hint
	}
	if leader == nil {
		return nil, &api.NotLeaderError{}
	}
	return nil, &api.NotLeaderError{Leader: leader.addr, Address: leader.addr}
}

func (s *seat) set(f func(*seat)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *seat) silence() {
	s.set(func(s *seat) { s.silent, s.restored = true, make(chan struct{}) })
}

func (s *seat) speak() {
	s.set(func(s *seat) {
		if s.silent {
			s.silent = false
			close(s.restored)
		}
	})
}

// pass waits until the seat is not silent.
func (s *seat) pass(ctx context.Context, gone <-chan struct{}) error {
	s.mu.Lock()
	silent, restored := s.silent, s.restored
	s.mu.Unlock()
	if !silent {
		return nil
	}
	select {
	case <-restored:
		return nil
	case <-gone:
		return lost(true)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Dial implements Dialer.
func (v *voters) Dial(ctx context.Context, addr string) (Peer, error) {
	s := v.seats[slices.IndexFunc(v.seats, func(s *seat) bool { return s.addr == addr })]
	if err := s.pass(ctx, nil); err != nil {
		return Peer{}, err
	}
	c := &line{forwardingService: forwardingService{s.service}, seat: s, gone: make(chan struct{})}
	return Peer{Service: c, Close: func() error { close(c.gone); return nil }}, nil
}

// line is a connection to a seat.
type line struct {
	forwardingService
	seat *seat
	gone chan struct{} // closed with the connection
}

// through makes a call whose request or answer may be delayed.
func (c *line) through(ctx context.Context, change bool, call func(api.Service) error) error {
	err := c.seat.pass(ctx, c.gone)
	if err == nil {
		var answer error
		if s, notLeader := c.seat.service(); notLeader != nil {
			answer = notLeader
		} else {
			answer = call(s)
		}
		if err = c.seat.pass(ctx, c.gone); err == nil {
			return answer
		}
	}
	if change {
		return fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("%w: %w", api.ErrNotReady, err)
}

func (c *line) KeepAlive(_ context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	c.seat.v.wg.Go(func() {
		if err := c.seat.pass(context.Background(), c.gone); err != nil {
			done(api.KeepAliveResponse{}, fmt.Errorf("%w: %w", api.ErrNotReady, err))
			return
		}
		c.forwardingService.KeepAlive(context.Background(), req, func(r api.KeepAliveResponse, err error) {
			c.seat.v.wg.Go(func() {
				if lost := c.seat.pass(context.Background(), c.gone); lost != nil {
					err = fmt.Errorf("%w: %w", api.ErrNotReady, lost)
				}
				done(r, err)
			})
		})
	})
}

func (c *line) Get(ctx context.Context, path string, id api.SessionID) (f api.File, perm api.CachePermission, err error) {
	err = c.through(ctx, false, func(s api.Service) (err error) {
		f, perm, err = s.Get(ctx, path, id)
		return err
	})
	return f, perm, err
}

func (c *line) GetStale(ctx context.Context, path string) (f api.File, err error) {
	err = c.through(ctx, false, func(s api.Service) (err error) {
		f, err = s.GetStale(ctx, path)
		return err
	})
	return f, err
}

func (c *line) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (made uint64, err error) {
	err = c.through(ctx, true, func(s api.Service) (err error) {
		made, err = s.Set(ctx, path, data, gen, o)
		return err
	})
	return made, err
}

// runVoters runs a test of five voters in virtual time.
func runVoters(t *testing.T, f func(t *testing.T, v *voters)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := newVoters(t, 5)
		f(t, v)
		v.close()
	})
}

// TestLeadershipMoves: leadership moves from server to server, by transfer and with the old leader
// partitioned, and some servers still name the old one. The session survives, every write is made
// once, and finding the leader takes few calls.
func TestLeadershipMoves(t *testing.T) {
	seed := testseed.New(t)
	runVoters(t, func(t *testing.T, v *voters) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := v.client()
		ctx := t.Context()
		s, err := c.Open(ctx, Options{})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := s.Acquire(ctx, "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writes := 0
		var slowest time.Duration
		writer.Go(func() {
			var gen uint64
			for ; ; writes++ {
				select {
				case <-stop:
					return
				default:
				}
				start := time.Now()
				made, err := s.Set(ctx, "/f", fmt.Append(nil, writes), gen, api.SetOptions{})
				slowest = max(slowest, time.Since(start))
				if errors.Is(err, api.ErrOutcomeUnknown) { // check whether it was made
					var f api.File
					if f, err = c.Get(ctx, "/f"); err == nil && string(f.Data) != fmt.Sprint(writes) {
						err = fmt.Errorf("outcome unknown, and not made: the file says %q", f.Data)
					}
					made = f.Generation
				}
				if err != nil {
					t.Errorf("write %d: %v", writes, err)
					return
				}
				gen = made
				time.Sleep(20 * time.Millisecond)
			}
		})
		moves := 200
		for range moves {
			time.Sleep(time.Duration(1+rng.IntN(3)) * time.Second)
			old := v.leader
			to := v.seats[rng.IntN(len(v.seats))]
			for to == old {
				to = v.seats[rng.IntN(len(v.seats))]
			}
			cut := rng.IntN(2) == 0
			if cut {
				old.silence()
			}
			for _, other := range v.seats {
				if other != to && rng.IntN(3) == 0 {
					other.set(func(s *seat) { s.hint = old })
				}
			}
			v.elect(to, time.Duration(rng.IntN(1000))*time.Millisecond)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			for _, other := range v.seats {
				other.set(func(s *seat) { s.hint = nil })
			}
			if cut {
				time.Sleep(time.Duration(rng.IntN(4)) * time.Second)
				old.speak()
			}
			if s.Err() != nil {
				t.Fatalf("seed %d: the session is over: %v", seed, s.Err())
			}
		}
		time.Sleep(3 * time.Second)
		if !lock.Held() {
			t.Error("the lock is not held")
		}
		close(stop)
		writer.Wait()
		v.mu.Lock()
		redirects := v.redirects
		v.mu.Unlock()
		t.Logf("%d writes through %d moves, the slowest took %v; %d calls met a server that does not lead", writes, moves, slowest, redirects)
		if slowest > 6*time.Second {
			t.Errorf("a write took %v", slowest)
		}
		if redirects > 20*moves {
			t.Errorf("%d calls met a server that does not lead, in %d moves", redirects, moves)
		}
		shut(t, s)
	})
}

// TestSilentServersCostNoSession: a session whose leader is partitioned tries two more partitioned
// servers, and still finds the new leader before its session expires there.
func TestSilentServersCostNoSession(t *testing.T) {
	for first := range 5 {
		runVoters(t, func(t *testing.T, v *voters) {
			c := v.client()
			s, err := c.Open(t.Context(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			c.leaders.mu.Lock()
			c.leaders.mu.next = first
			c.leaders.mu.Unlock()
			for _, i := range []int{0, 2, 3} {
				v.seats[i].silence()
			}
			v.elect(v.seats[4], 700*time.Millisecond)
			time.Sleep(10 * time.Second)
			if s.State() != Valid {
				t.Errorf("from address %d: the session is %v (%v)", first, s.State(), s.Err())
			}
			for _, seat := range v.seats {
				seat.speak()
			}
			shut(t, s)
		})
	}
}

// TestSilentLeaderWithoutSession: a Client without a session detects that the leader does not
// answer.
func TestSilentLeaderWithoutSession(t *testing.T) {
	runVoters(t, func(t *testing.T, v *voters) {
		c := v.client()
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		if _, err := c.Set(ctx, "/f", []byte("1"), 0, api.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		old := v.leader
		old.silence()
		v.elect(v.seats[3], 800*time.Millisecond)
		start := time.Now()
		took := func(what string, most time.Duration) {
			t.Helper()
			if d := time.Since(start); d > most {
				t.Errorf("%s took %v, want at most %v", what, d, most)
			}
			start = time.Now()
		}
		// A change that must not be made twice is not retried, and its outcome is reported as
		// unknown.
		if _, err := c.Set(ctx, "/f", []byte("2"), api.AnyGeneration, api.SetOptions{}); !errors.Is(err, api.ErrOutcomeUnknown) {
			t.Errorf("a write to the silent leader: %v", err)
		}
		took("that write", answerTime+probeTime)
		if f, err := c.Get(ctx, "/f"); err != nil || string(f.Data) != "1" {
			t.Errorf("%q %v", f.Data, err)
		}
		took("the next call", 500*time.Millisecond)
		// The other way round, with a call that is made again.
		old.speak()
		v.seats[3].silence()
		v.elect(old, 800*time.Millisecond)
		start = time.Now()
		if f, err := c.Get(ctx, "/f"); err != nil || string(f.Data) != "1" {
			t.Errorf("%q %v", f.Data, err)
		}
		took("a read from the silent leader", answerTime+probeTime+500*time.Millisecond)
		v.seats[3].speak()
		_ = c.Close()
	})
}

// TestCloseEndsSearch: Close ends a search at any moment.
func TestCloseEndsSearch(t *testing.T) {
	for i := range 300 {
		runVoters(t, func(t *testing.T, v *voters) {
			for _, s := range v.seats {
				s.silence()
			}
			c := v.client()
			got := make(chan error)
			go func() {
				_, err := c.Get(t.Context(), "/f")
				got <- err
			}()
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			_ = c.Close()
			if err := <-got; !errors.Is(err, api.ErrClosed) && !errors.Is(err, api.ErrNotReady) {
				t.Error(err)
			}
		})
	}
}

// TestSlowCallIsNotAbandoned: a server that answers other calls than the slow one is not abandoned.
func TestSlowCallIsNotAbandoned(t *testing.T) {
	runVoters(t, func(t *testing.T, v *voters) {
		c := v.client()
		holder, err := c.Open(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := holder.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before := v.leader
		p := c.leaders.mu.current
		other, err := c.Open(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(20 * time.Second)
			_ = l.Release(context.Background())
		}()
		start := time.Now()
		if _, err := other.Acquire(t.Context(), "/l", api.Exclusive, LockOptions{}); err != nil || time.Since(start) < 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if v.leader != before || c.leaders.mu.current != p {
			t.Error("the connection was given up")
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
		shut(t, holder)
	})
}
