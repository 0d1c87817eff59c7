package master

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// picky is a cluster in which some servers, or all, cannot load one tablet.
type picky struct {
	*masterView
	key      string
	all      bool
	level    int    // of the tablet; 0 means 2
	keeps    bool   // the server acquires the tablet before it fails, and does not release it
	refuses  string // the first that was tried
	refusals int
}

func (p *picky) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) error {
	if t.Key != p.key {
		return p.masterView.Load(ctx, v, t, q)
	}
	refused := false
	p.locked(func() {
		if p.refuses == "" {
			p.refuses = v.Name
		}
		if refused = p.all || p.refuses == v.Name; !refused {
			return
		}
		p.refusals++
		if row := p.rows[p.key]; p.keeps && row.Generation == t.Generation && row.Server != v.Name {
			row.Server = v.Name
			row.Generation++
		}
	})
	if refused {
		return errors.New("it cannot be loaded here")
	}
	return p.masterView.Load(ctx, v, t, q)
}

// begin runs a master with n nodes and tablets, one of which fails to load.
func (p *picky) begin(nodes, tablets int) (end func()) {
	f := newSimCluster(rand.New(rand.NewPCG(1, 1)), tablets)
	for range nodes {
		f.start()
	}
	p.masterView = &masterView{simCluster: f}
	for key, row := range f.rows {
		if row.Level() == cmp.Or(p.level, 2) {
			p.key = key
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
	p.a = newAssigner(Config{Tablets: p, Pause: time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
	var work sync.WaitGroup
	work.Go(func() { p.a.run(ctx) })
	return func() {
		lock.lose()
		cancel()
		work.Wait()
		p.flushes.Wait()
	}
}

// TestServerThatCannotLoad: a tablet that one server cannot load goes to another, though that one
// has more.
func TestServerThatCannotLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &picky{}
		defer p.begin(2, 4)()
		time.Sleep(20 * time.Second)
		p.locked(func() {
			if s := p.servers[p.rows[p.key].Server]; s == nil || s.has[p.key] == nil || s.name == p.refuses {
				t.Errorf("after 20s the tablet that %s cannot load is given to %q", p.refuses, p.rows[p.key].Server)
			}
		})
	})
}

// TestTakenByServerThatCannotLoad: a tablet that METADATA assigns to a live server that cannot load
// it moves to another server. That includes METADATA tablets, on which all levels below depend.
func TestTakenByServerThatCannotLoad(t *testing.T) {
	for _, level := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			p := &picky{level: level, keeps: true}
			defer p.begin(2, 4)()
			time.Sleep(time.Minute)
			p.locked(func() {
				if s := p.servers[p.rows[p.key].Server]; s == nil || s.has[p.key] == nil || s.name == p.refuses {
					t.Errorf("level %d: after a minute and %d refusals the tablet that %s cannot load is given to %q",
						level, p.refusals, p.refuses, p.rows[p.key].Server)
				}
			})
		})
	}
}

// TestUnloadableTablet: while a tablet cannot be loaded, unneeded logs of dead servers are still
// removed.
func TestUnloadableTablet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &picky{all: true}
		defer p.begin(3, 5)()
		time.Sleep(time.Minute)
		p.kill()
		time.Sleep(3 * time.Minute)
		p.locked(func() {
			for name := range p.logs {
				if p.servers[name] == nil {
					t.Errorf("the logs of %s are still there", name)
				}
			}
		})
	})
}
