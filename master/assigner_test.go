package master

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/api"
)

// runMaster runs an assigner until the returned function is called, or the test ends.
func runMaster(t *testing.T, view *masterView, epoch uint64) (lock *worldLock, end func()) {
	lock = &worldLock{seq: api.Sequencer{LockGeneration: epoch}, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	a := newAssigner(Config{Tablets: view, Pause: time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
	view.a = a
	var work sync.WaitGroup
	work.Go(func() { a.run(ctx) })
	end = func() { lock.lose(); cancel(); work.Wait(); view.flushes.Wait() }
	t.Cleanup(end)
	return lock, end
}

// masterSeed returns the seed of a test, and limits it to one processor: events at one instant then
// nearly always have the same order, so that a seed replays.
func masterSeed(t *testing.T) uint64 {
	processors := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(processors) })
	return testseed.New(t)
}

func masterRuns(n int) uint64 {
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && times > 0 {
		return uint64(n * times)
	}
	return uint64(n)
}

// wait waits until nothing is missing, for up to limit.
func (f *simCluster) wait(t *testing.T, limit time.Duration) {
	t.Helper()
	begun := time.Now()
	for {
		missing, key := f.settled()
		if missing == "" {
			return
		}
		if time.Since(begun) > limit {
			f.check(t)
			f.locked(func() { t.Fatalf("after %v: %s; %s", limit, missing, f.historyOf(key)) })
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (f *simCluster) check(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.wrong {
		t.Error(w)
	}
}

// A1, A2, A3: servers die at any time, also while they sort and load; METADATA is unreadable for a
// while; saves have unknown outcomes. In the end all tablets are served with all writes, no logs
// are left, and each piece was sorted once, plus once for each failure of its sorter.
func TestAssignerFaults(t *testing.T) {
	seed := masterSeed(t)
	for i := range masterRuns(30) {
		synctest.Test(t, func(t *testing.T) {
			f := newSimCluster(rand.New(rand.NewPCG(seed, i)), 20)
			rng := rand.New(rand.NewPCG(seed, i+1<<32))
			f.lossy, f.flaky, f.ms = rng.IntN(40), rng.IntN(20), 20+rng.IntN(2000)
			for range 4 {
				f.start()
			}
			_, end := runMaster(t, &masterView{simCluster: f}, 1)
			faults(f, rng, func() {})
			f.wait(t, 5*time.Minute)
			end()
			f.check(t)
			for piece, n := range f.sorts {
				if n > 1 {
					t.Errorf("run %d: piece %s was sorted %d times, and failed %d times", i, piece, n, f.broken[piece])
				}
			}
		})
	}
}

// faults writes, kills and starts servers for a while.
func faults(f *simCluster, rng *rand.Rand, more func()) {
	for n := range 300 {
		time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
		f.write(n)
		switch rng.IntN(40) {
		case 0:
			f.kill()
		case 1:
			f.start()
		case 2:
			f.locked(func() { f.down = !f.down })
		case 3:
			more()
		}
	}
	f.start()
	f.start()
	f.locked(func() { f.down = false })
}

// A1, A2: masters follow each other, and a stopped one resumes unaware: at most two act at a time.
func TestAssignersInTurn(t *testing.T) {
	seed := masterSeed(t)
	for i := range masterRuns(30) {
		synctest.Test(t, func(t *testing.T) {
			f := newSimCluster(rand.New(rand.NewPCG(seed, i)), 20)
			rng := rand.New(rand.NewPCG(seed, i+1<<32))
			f.lossy, f.ms = rng.IntN(30), 20+rng.IntN(3000)
			for range 4 {
				f.start()
			}
			epoch := uint64(1)
			view := &masterView{simCluster: f}
			lock, end := runMaster(t, view, epoch)
			var old sync.WaitGroup
			faults(f, rng, func() {
				view.pause()
				stopped, ended, after := view, end, time.Duration(rng.Int64N(int64(20*time.Second)))
				time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
				lock.lose()
				epoch++
				view = &masterView{simCluster: f}
				lock, end = runMaster(t, view, epoch)
				old.Go(func() {
					time.Sleep(after)
					stopped.resume()
					time.Sleep(time.Second) // until it learns of it
					ended()
				})
			})
			old.Wait()
			f.wait(t, 5*time.Minute)
			end()
			f.check(t)
		})
	}
}

// A4: no order waits for the server that died with it: its tablets are elsewhere within seconds.
func TestAssignerServerDiesLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 5)
		f.start()
		view := &masterView{simCluster: f}
		_, end := runMaster(t, view, 1)
		f.wait(t, time.Minute)
		f.locked(func() { f.ms = 60_000 }) // loads now take long
		f.start()
		f.start()
		f.locked(func() {
			for name, s := range f.servers {
				if len(s.has) > 0 {
					close(s.gone)
					delete(f.servers, name)
				}
			}
		})
		f.start()
		time.Sleep(20 * time.Second)
		f.locked(func() { // all of them: the remaining ones would take up to a minute
			f.ms = 20
			for name, s := range f.servers {
				close(s.gone)
				delete(f.servers, name)
			}
		})
		f.start()
		f.wait(t, 40*time.Second)
		end()
		f.check(t)
	})
}

// drainingView drains the servers that hold METADATA tablets at the start, and reads METADATA
// slowly: a read whose tablet moves waits until the tablet is served again.
type drainingView struct {
	*masterView
	draining map[string]bool
}

func (m *drainingView) Servers(ctx context.Context) ([]TabletServer, error) {
	all, err := m.masterView.Servers(ctx)
	for i := range all {
		all[i].Has, all[i].Silent = nil, false
		m.locked(func() {
			all[i].Draining = m.draining[all[i].Name]
			for key := range m.servers[all[i].Name].has {
				all[i].Has = append(all[i].Has, Held{Key: key})
			}
		})
	}
	return all, err
}

func (m *drainingView) Rows(ctx context.Context) (all []Tablet, whole bool, err error) {
	if all, whole, err = m.masterView.Rows(ctx); whole {
		time.Sleep(500 * time.Millisecond)
		if !m.metadataServed() {
			<-ctx.Done()
			return nil, false, ctx.Err()
		}
	}
	return all, whole, err
}

func (m *drainingView) metadataServed() bool {
	served := true
	m.locked(func() {
		for key, row := range m.rows {
			if s := m.servers[row.Server]; row.Level() < 2 && (s == nil || s.has[key] == nil) {
				served = false
			}
		}
	})
	return served
}

// A METADATA tablet that moves while the master reads METADATA is not unavailable for the length of
// the master's timeout.
func TestMetadataMovesWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 5)
		for range 4 {
			f.start()
		}
		view := &drainingView{masterView: &masterView{simCluster: f}, draining: map[string]bool{}}
		f.ms = 1000
		lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		a := newAssigner(Config{Tablets: view, Pause: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, lock)
		var work sync.WaitGroup
		work.Go(func() { a.run(ctx) })
		f.wait(t, time.Minute)
		for range 20 {
			f.locked(func() {
				clear(view.draining)
				for _, row := range f.rows {
					if row.Level() < 2 {
						view.draining[row.Server] = true
					}
				}
			})
			away := time.Duration(0)
			for range 600 {
				time.Sleep(50 * time.Millisecond)
				if away += 50 * time.Millisecond; view.metadataServed() {
					away = 0
				}
				if away > readTimeout/2 {
					t.Fatalf("METADATA is not served for %v", away)
				}
			}
		}
		cancel()
		work.Wait()
		view.flushes.Wait()
		f.check(t)
	})
}

// queuedCluster has one server whose loads end only when released. It counts them.
type queuedCluster struct {
	*masterView
	loads   chan string
	release chan struct{}
}

func (m *queuedCluster) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) error {
	m.loads <- t.Key
	<-m.release
	return m.masterView.Load(ctx, v, t, q)
}

// A1: a node that is no longer master gives no order: neither one planned earlier that still waits
// for the server, nor one found by a reconciliation in progress. Servers would reject it only if
// they know the next master.
func TestNoOrderAfterTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 3*loadsAtOnce)
		view := &queuedCluster{masterView: &masterView{simCluster: f}, loads: make(chan string, 100), release: make(chan struct{})}
		lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
		a := newAssigner(Config{Tablets: view, Pause: time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
		view.a = a
		f.start()
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { a.run(ctx) })
		for range 2 { // the root tablet and the other METADATA tablets
			<-view.loads
			synctest.Wait()
			view.release <- struct{}{}
		}
		synctest.Wait()
		time.Sleep(time.Minute) // several reconciliations, until user tablets are assigned
		synctest.Wait()
		begun := len(view.loads)
		if begun != loadsAtOnce {
			t.Fatalf("%d loads are under way", begun)
		}
		lock.lose()
		close(view.release)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(view.loads) - begun; n > 0 {
			t.Errorf("%d loads were ordered after the lock was lost", n)
		}
		a.mu.Lock()
		for _, o := range a.mu.busy {
			t.Errorf("%v of %v is begun by a look after the lock was lost", o.Kind, &o.Tablet)
		}
		a.mu.Unlock()
		cancel()
		work.Wait()
		view.flushes.Wait()
	})
}
