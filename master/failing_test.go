package master

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// stalled is a cluster in which one node loads no user tablets: its loads time out, or fail at
// once.
type stalled struct {
	*masterView
	node  string
	hangs bool
	tries int
}

func (x *stalled) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) error {
	if !strings.HasPrefix(v.Name, x.node) || t.Level() < 2 {
		return x.masterView.Load(ctx, v, t, q)
	}
	x.locked(func() { x.tries++ })
	if x.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return errTestChanged
}

// TestServerThatLoadsNothing: a server that loads no tablet, and therefore has the fewest, does not
// delay tablets that another server can load.
func TestServerThatLoadsNothing(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 200)
			f.start()
			f.start()
			x := &stalled{masterView: &masterView{simCluster: f}, node: "n2.", hangs: hangs}
			ctx, cancel := context.WithCancel(context.Background())
			lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
			x.a = newAssigner(Config{Tablets: x, Pause: time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
			var work sync.WaitGroup
			work.Go(func() { x.a.run(ctx) })
			limit := time.Minute
			if hangs {
				limit = orderTimeout + time.Minute // loads that it began may still complete
			}
			served := func() (n int) {
				x.locked(func() {
					for _, s := range x.servers {
						n += len(s.has)
					}
				})
				return n
			}
			time.Sleep(time.Minute)
			if n := served(); hangs && n < 202-loadsAtOnce {
				t.Errorf("after a minute %d of 202 tablets are served", n)
			}
			time.Sleep(limit - time.Minute)
			if n := served(); n < 202 {
				t.Errorf("hangs %v: %d of 202 tablets are served after %v and %d loads on the server that loads nothing", hangs, n, limit, x.tries)
			}
			lock.lose()
			cancel()
			work.Wait()
			x.flushes.Wait()
		})
	}
}

// TestStalledServer: an idle server counts as stalled 15 s after the first of its loads began, if
// none has ended and another one waits. The waiting load is then planned again.
func TestStalledServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAssigner(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
		a.noteAlive([]string{"n1"})
		defer a.noteAlive(nil)
		time.Sleep(time.Hour) // idle
		begun := time.Now()
		for i := range loadsAtOnce {
			if _, err := a.acquireLoad(t.Context(), "n1", string(rune('a'+i))); err != nil {
				t.Fatalf("load %d: %v", i, err)
			}
			time.Sleep(time.Second)
		}
		_, err := a.acquireLoad(t.Context(), "n1", "z")
		if took := time.Since(begun); !errors.Is(err, errReplan) || took < stalledTime || took > stalledTime+time.Second {
			t.Errorf("the one that waits ends with %v after %v", err, took)
		}
	})
}

// TestLoadWaitEnds: a waiting load starts when another one ends. It stops waiting when the server
// is gone or the mastership has ended.
func TestLoadWaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(a *assigner, done func(error), cancel func())
		want error
	}{
		"a load ends":            {func(_ *assigner, done func(error), _ func()) { done(nil) }, nil},
		"the server is gone":     {func(a *assigner, _ func(error), _ func()) { a.noteAlive(nil) }, errServerGone},
		"the mastership is over": {func(_ *assigner, _ func(error), cancel func()) { cancel() }, context.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAssigner(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
			a.noteAlive([]string{"n1"})
			defer a.noteAlive(nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last func(error)
			for range loadsAtOnce {
				last, _ = a.acquireLoad(ctx, "n1", "k")
			}
			ended := make(chan error, 1)
			go func() {
				_, err := a.acquireLoad(ctx, "n1", "z")
				ended <- err
			}()
			time.Sleep(500 * time.Millisecond)
			if len(ended) > 0 {
				t.Errorf("%s: it does not wait", name)
			}
			c.end(a, last, cancel)
			begun := time.Now()
			if err := <-ended; !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || time.Since(begun) != 0 {
				t.Errorf("%s: %v after %v, want %v at once", name, err, time.Since(begun), c.want)
			}
		})
	}
}
