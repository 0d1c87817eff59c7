package master

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/raftmeta/api"
)

// TestRetryPauses: after five failures with a second's pause each, the pause doubles up to half a
// minute.
func TestRetryPauses(t *testing.T) {
	for failures, want := range []time.Duration{1, 1, 1, 1, 1, 1, 2, 4, 8, 16, 30, 30} {
		if got := retryAfter(failures); got != want*time.Second {
			t.Errorf("after %d failures the pause is %v, want %v", failures, got, want*time.Second)
		}
	}
	if got := retryAfter(1 << 40); got != retryPauseMax {
		t.Errorf("after very many the pause is %v", got)
	}
}

// TestNextOrder: an unloaded tablet is loaded at its destination if that server is alive, the
// tablet's generation is known, and no other order concerns it.
func TestNextOrder(t *testing.T) {
	key := string(metadata.Key(nil, 16, []byte("row")))
	unload := Order{Kind: Unload, Server: "n1.1", To: "n2.1", Tablet: Tablet{Key: key, Generation: 3}}
	for name, c := range map[string]struct {
		change func(o *Order)
		busy   bool
		want   bool
	}{
		"unloaded":               {func(*Order) {}, true, true},
		"loaded":                 {func(o *Order) { o.Kind = Load }, true, false},
		"to a dead server":       {func(o *Order) { o.To = "n3.1" }, true, false},
		"to none":                {func(o *Order) { o.To = "" }, true, false},
		"of no generation":       {func(o *Order) { o.Tablet.Generation = 0 }, true, false},
		"in the hands of others": {func(*Order) {}, false, false},
	} {
		a := newAssigner(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
		a.mu.live = map[string]serverState{"n1.1": {}, "n2.1": {}}
		o := unload
		c.change(&o)
		if c.busy {
			a.mu.busy = []Order{o}
		}
		if got := a.next(&o); got != c.want {
			t.Errorf("%s: another order follows: %v", name, got)
		}
		if c.want && (o.Kind != Load || o.Server != "n2.1" || o.To != "" || a.mu.busy[0].Kind != Load) {
			t.Errorf("%s: it is %+v", name, o)
		}
	}
}

// flaky is a cluster in which the first loads of a tablet fail.
type flaky struct {
	*masterView
	key   string
	fails int
}

func (f *flaky) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) (err error) {
	f.locked(func() {
		if t.Key == f.key && f.fails > 0 {
			f.fails--
			err = errors.New("not now")
		}
	})
	if err != nil {
		return err
	}
	return f.masterView.Load(ctx, v, t, q)
}

// TestFailuresEndWithSuccess: a successful load resets the tablet's failures.
func TestFailuresEndWithSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 5)
		f.start()
		view := &flaky{masterView: &masterView{simCluster: f}, key: string(metadata.Key(nil, 16, []byte("row003"))), fails: 3}
		ctx, cancel := context.WithCancel(context.Background())
		lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
		a := newAssigner(Config{Tablets: view, Pause: time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
		view.a = a
		var work sync.WaitGroup
		work.Go(func() { a.run(ctx) })
		time.Sleep(2 * time.Second)
		a.mu.Lock()
		if n := len(a.mu.failures); n != 1 {
			t.Errorf("%d tablets have failures, want 1", n)
		}
		a.mu.Unlock()
		time.Sleep(time.Minute)
		a.mu.Lock()
		if n := len(a.mu.failures); n != 0 || view.fails != 0 {
			t.Errorf("%d tablets have failures after they were loaded: %v", n, a.mu.failures)
		}
		a.mu.Unlock()
		lock.lose()
		cancel()
		work.Wait()
		view.flushes.Wait()
	})
}

// TestLoadRecords: a server counts as failing if three tablets have failed on it in a row or no
// load has ended for 15 s, and for a minute after the last of these.
func TestLoadRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAssigner(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
		fresh := func() *loadRecord {
			r := &loadRecord{failed: map[string]bool{}, ended: time.Now()}
			a.mu.live = map[string]serverState{"n1": {record: r}}
			return r
		}
		damaged := errors.New("damaged")
		r := fresh()
		for i, key := range []string{"a", "a", "b", "c"} {
			if r.failing(time.Now()) {
				t.Errorf("it is failing after %d failures", i)
			}
			a.noteLoad("n1", key, damaged)
		}
		if !r.failing(time.Now()) || !r.failing(time.Now().Add(failingTime-1)) || r.failing(time.Now().Add(failingTime)) {
			t.Error("after three tablets have failed it is not failing for a minute")
		}
		a.noteLoad("n1", "d", nil)
		if r.failing(time.Now()) || len(r.failed) != 0 {
			t.Error("it is failing after a load")
		}
		for _, err := range []error{ErrOvertaken, ErrNotMaster} {
			r = fresh()
			for _, key := range []string{"a", "b", "c"} {
				a.noteLoad("n1", key, err)
			}
			if r.failing(time.Now()) {
				t.Errorf("it is failing after errors that say nothing of it: %v", err)
			}
		}
		r = fresh()
		time.Sleep(stalledTime - 1)
		if a.noteStalled("n1") {
			t.Error("it is stalled too early")
		}
		time.Sleep(time.Nanosecond)
		if !a.noteStalled("n1") || !r.failing(time.Now().Add(failingTime-1)) || r.failing(time.Now().Add(failingTime)) {
			t.Error("after 15 s without an end of a load it is not failing for a minute")
		}
		if a.noteStalled("n2") {
			t.Error("a server that is gone is stalled")
		}
	})
}

// TestEndedOrders: after the load of a user tablet, while the server has others to load and no move
// is pending, the rows are not reread, and more loads are planned when few are left.
func TestEndedOrders(t *testing.T) {
	user := Tablet{Key: string(metadata.Key(nil, 16, []byte("row"))), Generation: 1}
	load := Order{Kind: Load, Server: "n1", Tablet: user}
	busy := func(n int, server string) (all []Order) {
		for i := range n {
			all = append(all, Order{Kind: Load, Server: server, Tablet: Tablet{Key: string(metadata.Key(nil, 17, []byte{byte(i)}))}})
		}
		return all
	}
	for name, c := range map[string]struct {
		o          Order
		err        error
		busy       []Order
		requests   []*request
		look, read bool
	}{
		"a few left":       {load, nil, busy(loadsFew, "n1"), nil, true, false},
		"more left":        {load, nil, busy(loadsFew+1, "n1"), nil, false, false},
		"fewer left":       {load, nil, busy(loadsFew-1, "n1"), nil, false, false},
		"none left":        {load, nil, nil, nil, true, true},
		"others' left":     {load, nil, busy(3, "n2"), nil, true, true},
		"failed":           {load, errReplan, busy(loadsFew, "n1"), nil, true, true},
		"an unload":        {Order{Kind: Unload, Server: "n1", Tablet: user}, nil, busy(2, "n1"), nil, true, true},
		"of METADATA":      {Order{Kind: Load, Server: "n1", Tablet: Tablet{Key: RootKey}}, nil, busy(2, "n1"), nil, true, true},
		"a move waits":     {load, nil, busy(2, "n1"), []*request{{}}, true, true},
		"a move was over":  {load, nil, busy(loadsFew+2, "n1"), []*request{{over: true}}, false, false},
		"one of two waits": {load, nil, busy(2, "n1"), []*request{{over: true}, {}}, true, true},
	} {
		a := newAssigner(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
		a.mu.busy, a.mu.requests, a.mu.loaded = append(c.busy, c.o), c.requests, map[string]string{}
		look := a.endedLocked(&c.o, c.err)
		if look != c.look || a.mu.stale != c.read || (a.mu.loaded[c.o.Tablet.Key] == "n1") == c.read || len(a.mu.busy) != len(c.busy) {
			t.Errorf("%s: looks again %v, reads again %v, loaded %v, %d busy", name, look, a.mu.stale, a.mu.loaded, len(a.mu.busy))
		}
	}
}

// TestSmallIsBoth: a small tablet has few bytes and little load. Of equal pairs the first is
// merged.
func TestSmallIsBoth(t *testing.T) {
	for _, c := range []struct {
		h    Held
		want bool
	}{
		{Held{Bytes: mergeBytesMax}, true}, {Held{Bytes: mergeBytesMax + 1}, false}, {Held{Load: mergeLoadMax}, false},
		{Held{Bytes: mergeBytesMax + 1, Load: mergeLoadMax}, false}, {Held{}, true},
	} {
		if got := c.h.small(); got != c.want {
			t.Errorf("%d bytes with a load of %v are small: %v", c.h.Bytes, c.h.Load, got)
		}
	}
	pair := func(bytes ...int64) string {
		s := smallState()
		for i := range s.Tablets {
			h := &s.Servers[i%2].Has[i/2]
			if h.Bytes = mergeBytesMax; i < len(bytes) {
				h.Bytes = bytes[i]
			}
		}
		if u := SmallNeighbours(s); u != nil {
			return u.Lower
		}
		return ""
	}
	tablets := smallState().Tablets
	for want, got := range map[string]string{
		"":             pair(mergeBytesMax-1, 2),
		tablets[0].Key: pair(5, 5, 5, 6),
		tablets[1].Key: pair(mergeBytesMax, 7, mergeBytesMax-7),
	} {
		if got != want {
			t.Errorf("the pair at %q is to be merged, want that at %q", got, want)
		}
	}
}
