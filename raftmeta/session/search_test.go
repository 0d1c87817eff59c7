package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// addresses returns n addresses.
func addresses(n int) (all Addresses) {
	for i := range n {
		all = append(all, fmt.Sprint("s", i))
	}
	return all
}

// dialFunc implements Dialer.
type dialFunc func(ctx context.Context, addr string) (Peer, error)

func (f dialFunc) Dial(ctx context.Context, addr string) (Peer, error) { return f(ctx, addr) }

func dialing(t *testing.T, addrs Addresses, d dialFunc, change func(cfg *Config)) *Client {
	t.Helper()
	cfg := Config{Locator: addrs, Dialer: d, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSearchIsBounded: a search dials a further address every 200 ms, each address once, and at
// most eight.
func TestSearchIsBounded(t *testing.T) {
	for _, n := range []int{1, 3, 20} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			at := map[string]time.Duration{}
			start := time.Now()
			c := dialing(t, addresses(n), func(ctx context.Context, addr string) (Peer, error) {
				mu.Lock()
				if _, again := at[addr]; again {
					t.Errorf("%s is dialed again", addr)
				}
				at[addr] = time.Since(start)
				mu.Unlock()
				<-ctx.Done()
				return Peer{}, ctx.Err()
			}, func(cfg *Config) { cfg.DialTimeout = time.Minute })
			got := make(chan error)
			go func() {
				_, err := c.Get(context.Background(), "/f")
				got <- err
			}()
			time.Sleep(10 * time.Second)
			_ = c.Close()
			if err := <-got; !errors.Is(err, api.ErrClosed) && !errors.Is(err, api.ErrNotReady) {
				t.Error(err)
			}
			if want := min(n, 8); len(at) != want {
				t.Errorf("of %d addresses %d are dialed, want %d", n, len(at), want)
			}
			for i := range len(at) {
				if got, want := at[fmt.Sprint("s", i)], time.Duration(i)*200*ms; got != want {
					t.Errorf("address %d is dialed after %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestSearchOutlivesFailures: a search continues as long as one dial is in progress, and fails with
// the last.
func TestSearchOutlivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := dialing(t, addresses(3), func(_ context.Context, addr string) (Peer, error) {
			switch addr {
			case "s0":
				time.Sleep(300 * ms)
			case "s1":
				time.Sleep(400 * ms) // until 600 ms
				return Peer{Service: &scripted{}}, nil
			case "s2": // at 400 ms
			}
			return Peer{}, errors.New("refused")
		}, nil)
		if _, err := c.Get(t.Context(), "/f"); err != nil || time.Since(start) != 600*ms || c.LeaderAddress() != "s1" {
			t.Errorf("%v after %v from %s", err, time.Since(start), c.LeaderAddress())
		}
		_ = c.Close()
		if c.LeaderAddress() != "" {
			t.Errorf("after Close the leader is %s", c.LeaderAddress())
		}
		if _, err := c.Get(t.Context(), "/f"); !errors.Is(err, api.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		start = time.Now()
		dials := 0
		c = dialing(t, addresses(1), func(context.Context, string) (Peer, error) {
			dials++
			return Peer{}, errors.New("refused")
		}, func(cfg *Config) { cfg.RetryTimeMax = 5 * time.Second })
		if _, err := c.Get(t.Context(), "/f"); !errors.Is(err, ErrUnreachable) || time.Since(start) > 5*time.Second || dials < 5 {
			t.Errorf("%v after %v and %d dials", err, time.Since(start), dials)
		}
		_ = c.Close()
	})
}

// TestSearchWithoutServers: a call fails when no address is known, after a last attempt.
func TestSearchWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialing(t, nil, nil, func(cfg *Config) { cfg.Dialer = &scripted{} })
		if _, err := c.Get(t.Context(), "/f"); !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
		_ = c.Close()
	})
}

// TestConnectionsAreBounded: a client keeps at most eight connections, and does not dial a
// connected server again.
func TestConnectionsAreBounded(t *testing.T) {
	for _, n := range []int{3, 8, 12} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			open, most, dials := 0, 0, 0
			c := dialing(t, addresses(n), func(context.Context, string) (Peer, error) {
				mu.Lock()
				defer mu.Unlock()
				open++
				dials++
				most = max(most, open)
				none := &scripted{get: func(context.Context, int) (api.File, api.CachePermission, error) {
					return api.File{}, api.CachePermission{}, &api.NotLeaderError{}
				}}
				return Peer{Service: none, Close: func() error {
					mu.Lock()
					defer mu.Unlock()
					open--
					return nil
				}}, nil
			}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			if _, err := c.Get(ctx, "/f"); !errors.Is(err, api.ErrNotReady) {
				t.Error(err)
			}
			mu.Lock()
			if most > peersMax+1 || open > peersMax || open != min(n, peersMax) || n <= peersMax && dials != n {
				t.Errorf("of %d servers %d are connected, at most %d, after %d dials", n, open, most, dials)
			}
			mu.Unlock()
			_ = c.Close()
			if open != 0 {
				t.Errorf("%d connections are left", open)
			}
		})
	}
}

// TestLostConnection: a lost connection is closed at once, one to a server that shuts down 2 s
// later, and both are dialed again for the next call. If a call fails for another reason, its
// connection is kept.
func TestLostConnection(t *testing.T) {
	for _, c := range []struct {
		err    error
		dials  int
		closed time.Duration // 0: never
	}{
		{fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, lost(true)), 2, ms},
		{api.ErrClosed, 2, ms},
		{fmt.Errorf("%w: %w", api.ErrNotReady, &rpc.ConnLostError{Err: rpc.ErrDraining}), 2, 2 * time.Second},
		{api.ErrNotReady, 1, 0},
		{api.ErrGeneration, 1, 0},
		{api.ErrOutcomeUnknown, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &scripted{set: func(n int) (uint64, error) {
				if n == 1 {
					return 0, c.err
				}
				return 77, nil
			}}
			client, _ := l.client(t, nil)
			for range 2 {
				_, _ = client.SetACL(t.Context(), "/f", "x", api.SetOptions{})
			}
			l.wantCalls(t, c.err.Error(), "Dial", c.dials)
			if c.closed > 0 {
				time.Sleep(c.closed - 100*ms)
				if c.closed > time.Second {
					l.wantCalls(t, "before: "+c.err.Error(), "close", 0)
				}
				time.Sleep(200 * ms)
				l.wantCalls(t, "after: "+c.err.Error(), "close", 1)
			} else {
				time.Sleep(5 * time.Second)
				l.wantCalls(t, c.err.Error(), "close", 0)
			}
			_ = client.Close()
			l.wantCalls(t, "in the end: "+c.err.Error(), "close", c.dials)
		})
	}
}

// TestLeaderAddress: the address of the leader is known from the answer of the first call until the connection is lost.
func TestLeaderAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{set: func(int) (uint64, error) { return 0, fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, lost(true)) }}
		c, _ := l.client(t, nil)
		expect := func(what, want string) {
			t.Helper()
			if got := c.LeaderAddress(); got != want {
				t.Errorf("%s the leader is %q, want %q", what, got, want)
			}
		}
		expect("before the first call", "")
		if _, err := c.Get(t.Context(), "/f"); err != nil {
			t.Error(err)
		}
		expect("after it", "here")
		if _, err := c.SetACL(t.Context(), "/f", "x", api.SetOptions{}); !errors.Is(err, api.ErrOutcomeUnknown) {
			t.Error(err)
		}
		expect("when the connection is lost", "")
		_ = c.Close()
	})
}

// TestSilentServerIsProbed: a server that answers no call for 1 s is probed every second. It is
// abandoned if a probe is not answered within 2 s, with any answer. It is not probed while it
// answers calls.
func TestSilentServerIsProbed(t *testing.T) {
	hang := func(ctx context.Context, _ int) (api.File, api.CachePermission, error) {
		<-ctx.Done()
		return api.File{}, api.CachePermission{}, ctx.Err()
	}
	for name, c := range map[string]struct {
		stale  func(ctx context.Context, n int) error
		probes int // in 10.5 s
		closed int
	}{
		"answers the probe": {nil, 10, 0},
		"rejects the probe": {func(context.Context, int) error { return api.ErrNotFound }, 10, 0},
		"answers late":      {func(context.Context, int) error { time.Sleep(1500 * ms); return nil }, 4, 0},
		"is silent":         {func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, 1, 1},
		"falls silent later": {func(ctx context.Context, n int) error {
			if n > 2 {
				<-ctx.Done()
			}
			return ctx.Err()
		}, 3, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &scripted{get: hang, stale: c.stale}
			client, _ := l.client(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan struct{})
			go func() {
				_, _ = client.Get(ctx, "/f")
				close(got)
			}()
			time.Sleep(10500 * ms)
			l.wantCalls(t, name, "GetStale", c.probes)
			l.wantCalls(t, name, "close", c.closed)
			cancel()
			<-got
			_ = client.Close()
		})
	}
}

// TestProbeWaitsForSilence: a server is probed 1 s after the last answer, or after the first call
// since all were answered. The end of a cancelled call is not an answer.
func TestProbeWaitsForSilence(t *testing.T) {
	type call struct{ at, answered, givenUp time.Duration } // answered or cancelled after that time
	for name, c := range map[string]struct {
		calls []call
		probe time.Duration // when the first one is made; 0: never
	}{
		"one call":                     {[]call{{at: 0, givenUp: 5 * time.Second}}, time.Second},
		"a call after another":         {[]call{{at: 0, answered: 100 * ms}, {at: 900 * ms, givenUp: 5 * time.Second}}, 1900 * ms},
		"a call is answered meanwhile": {[]call{{at: 0, givenUp: 5 * time.Second}, {at: 500 * ms, answered: 200 * ms}}, 1700 * ms},
		"a call is given up meanwhile": {[]call{{at: 0, givenUp: 5 * time.Second}, {at: 500 * ms, givenUp: 200 * ms}}, time.Second},
		"only short calls":             {[]call{{at: 0, answered: 200 * ms}, {at: 600 * ms, answered: 900 * ms}}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			probed := make(chan time.Duration, 100)
			type key struct{}
			l := &scripted{
				get: func(ctx context.Context, _ int) (api.File, api.CachePermission, error) {
					select {
					case <-time.After(ctx.Value(key{}).(time.Duration)):
						return api.File{}, api.CachePermission{}, api.ErrNotFound
					case <-ctx.Done():
						return api.File{}, api.CachePermission{}, ctx.Err()
					}
				},
				stale: func(context.Context, int) error { probed <- time.Since(start); return nil },
			}
			client, _ := l.client(t, nil)
			var calls sync.WaitGroup
			for _, one := range c.calls {
				calls.Go(func() {
					time.Sleep(one.at)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if one.givenUp > 0 {
						time.AfterFunc(one.givenUp, cancel)
						one.answered = time.Hour
					}
					_, _ = client.Get(context.WithValue(ctx, key{}, one.answered), "/f")
				})
			}
			calls.Wait()
			var at time.Duration
			select {
			case at = <-probed:
			default:
			}
			if at != c.probe {
				t.Errorf("%s: probed after %v, want %v", name, at, c.probe)
			}
			_ = client.Close()
		})
	}
}

// TestEphemeralOutcome: after a Set of unknown outcome, only a file that had to be new, and is
// ephemeral of this session with the same content, proves that the Set succeeded. RS4.
func TestEphemeralOutcome(t *testing.T) {
	const own = api.SessionID(3)
	file := func(of api.SessionID, data string) api.File {
		return api.File{Stat: api.Stat{Path: "/e", Generation: 8, Ephemeral: of}, Data: []byte(data)}
	}
	ephemeral := api.SetOptions{Session: own, Ephemeral: true}
	for name, c := range map[string]struct {
		there api.File
		gone  bool // the file cannot be read
		gen   uint64
		o     api.SetOptions
		made  bool
	}{
		"its file":                        {file(own, "x"), false, 0, ephemeral, true},
		"its file with another content":   {file(own, "y"), false, 0, ephemeral, false},
		"another session's file":          {file(4, "x"), false, 0, ephemeral, false},
		"a file that stays":               {file(0, "x"), false, 0, ephemeral, false},
		"no file":                         {file(own, "x"), true, 0, ephemeral, false},
		"its file, which was to be there": {file(own, "x"), false, 5, ephemeral, false},
		"its file, whatever was there":    {file(own, "x"), false, api.AnyGeneration, ephemeral, false},
		"its file, though it is to stay":  {file(own, "x"), false, 0, api.SetOptions{Session: own}, false},
		"a file of no session":            {file(0, "x"), false, 0, api.SetOptions{Ephemeral: true}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &scripted{
				set: func(int) (uint64, error) { return 0, api.ErrOutcomeUnknown },
				get: func(context.Context, int) (api.File, api.CachePermission, error) {
					if c.gone {
						return c.there, api.CachePermission{}, api.ErrNotFound
					}
					return c.there, api.CachePermission{}, nil
				},
			}
			client, _ := l.client(t, func(cfg *Config) { cfg.RetryTimeMax = time.Second })
			made, err := client.Set(t.Context(), "/e", []byte("x"), c.gen, c.o)
			if c.made != (err == nil) || c.made && made != 8 || !c.made && !errors.Is(err, api.ErrOutcomeUnknown) {
				t.Errorf("%s: generation %d, %v", name, made, err)
			}
			_ = client.Close()
		})
	}
}
