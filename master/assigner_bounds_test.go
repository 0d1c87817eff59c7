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

// TestRetryPauses: five orders for a tablet are repeated after a second each, then the pause doubles up to half a minute.
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

// TestNextOrder: an unloaded tablet is loaded where it is to go if that server is alive, the tablet's generation is known, and
// no other order has it.
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
		a.mu.ends = map[string]serverEnd{"n1.1": {}, "n2.1": {}}
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

// flaky is a fleet in which the first loads of a tablet fail.
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

// TestFailuresEndWithSuccess: when a tablet has been loaded, the failures before do not count any more.
func TestFailuresEndWithSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTabletFleet(rand.New(rand.NewPCG(1, 1)), 5)
		f.start()
		view := &flaky{masterView: &masterView{tabletFleet: f}, key: string(metadata.Key(nil, 16, []byte("row003"))), fails: 3}
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
