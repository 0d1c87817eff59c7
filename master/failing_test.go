package master

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// stalled is a fleet in which one node loads no tablet of users: its loads end with their timeout, or fail at once.
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

// TestServerThatLoadsNothing: a server that loads no tablet, and has the least for that reason, does not keep tablets waiting that another
// server can load.
func TestServerThatLoadsNothing(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newTabletFleet(rand.New(rand.NewPCG(1, 1)), 200)
			f.start()
			f.start()
			x := &stalled{masterView: &masterView{tabletFleet: f}, node: "n2.", hangs: hangs}
			ctx, cancel := context.WithCancel(context.Background())
			lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
			x.a = newAssigner(Config{Tablets: x, Pause: time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
			var work sync.WaitGroup
			work.Go(func() { x.a.run(ctx) })
			limit := time.Minute
			if hangs {
				limit = orderTimeout + time.Minute // what it has begun to load it may load still
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
