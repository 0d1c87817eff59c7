package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/api"
)

// TestRandomSchedules runs clients with drifting clocks over links that lose, delay and duplicate
// messages, through partitions and failovers. It checks RS1, RS2 and RS7 continuously.
func TestRandomSchedules(t *testing.T) {
	seed := testseed.New(t)
	runs := 100 * soak()
	if testing.Short() {
		runs = 40
	}
	for i := range runs {
		synctest.Test(t, func(t *testing.T) { schedule(t, seed+uint64(i)) })
		if t.Failed() {
			t.Logf("run %d: STELE_SEED=%d replays it first", i, seed+uint64(i))
			return
		}
	}
}

// schedule runs three clients for 20 s.
func schedule(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	schedule3(t, seed, rng, newWorld(t, seed, 0.95+rng.Float64()/10))
}

func schedule3(t *testing.T, seed uint64, rng *rand.Rand, w *world) {
	c := &chaos{world: w, t: t, stop: make(chan struct{})}
	var actors []*actor
	for i := range 3 {
		client, link := w.client(0.95 + rng.Float64()/10)
		link.lose, link.twice = rng.Float64()/5, rng.Float64()/5
		link.delay = 1 + time.Duration(rng.Int64N(int64(300*time.Millisecond)))
		actors = append(actors, &actor{chaos: c, name: fmt.Sprint(i), client: client, link: link, rng: rand.New(rand.NewPCG(seed, uint64(i+10)))})
	}
	var wg sync.WaitGroup
	for _, a := range actors {
		wg.Go(a.run)
	}
	wg.Go(func() { c.watchLocks(actors) })
	for range 4 {
		time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
		if rng.IntN(2) == 0 {
			w.failover(time.Duration(rng.Int64N(int64(3 * time.Second))))
			continue
		}
		l := w.links[rng.IntN(len(w.links))]
		l.setCut(true)
		time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
		l.setCut(false)
	}
	close(c.stop)
	wg.Wait()
	for _, a := range actors {
		_ = a.client.Close()
	}
	w.close()
}

type chaos struct {
	*world
	t    *testing.T
	stop chan struct{}
}

func (c *chaos) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// watchLocks checks every millisecond which clients consider the lock held.
func (c *chaos) watchLocks(actors []*actor) {
	for !c.stopped() {
		time.Sleep(time.Millisecond)
		holders := 0
		for _, a := range actors {
			if l := a.holds(); l != nil && l.Held() {
				holders++
			}
		}
		if holders > 1 {
			c.t.Errorf("%d sessions believe that they hold the lock", holders)
			return
		}
	}
}

// actor is one client: it reads and writes two files, and acquires a lock, in as many sessions as
// necessary.
type actor struct {
	*chaos
	name   string
	client *Client
	link   *link
	rng    *rand.Rand

	mu   sync.Mutex
	lock *Lock
}

func (a *actor) holds() *Lock {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lock
}

func (a *actor) setLock(l *Lock) {
	a.mu.Lock()
	a.lock = l
	a.mu.Unlock()
}

func (a *actor) run() {
	for !a.stopped() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		s, err := a.client.Open(ctx, Options{Name: a.name, Grace: 5 * time.Second})
		cancel()
		if err != nil {
			continue
		}
		var wg sync.WaitGroup
		wg.Go(func() { a.locks(s) })
		for range 2 {
			wg.Go(func() { a.reads(s) })
		}
		wg.Go(func() { a.holdsVersions(s) })
		a.writes(s)
		wg.Wait()
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		_ = s.Close(ctx)
		cancel()
	}
}

func (a *actor) pause(most time.Duration) {
	a.mu.Lock()
	d := time.Duration(a.rng.Int64N(int64(most)))
	a.mu.Unlock()
	time.Sleep(d)
}

func (a *actor) path() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return []string{"/x", "/y"}[a.rng.IntN(2)]
}

func (a *actor) goesOn(s *Session) bool { return !a.stopped() && s.Err() == nil }

func (a *actor) locks(s *Session) {
	for a.goesOn(s) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		l, err := s.Acquire(ctx, "/lock", api.Exclusive, LockOptions{})
		if err == nil {
			a.setLock(l)
			a.pause(time.Second)
			err = l.Release(ctx)
		}
		cancel()
		if err != nil {
			a.pause(100 * time.Millisecond)
		}
	}
}

func (a *actor) writes(s *Session) {
	for n := 0; a.goesOn(s); n++ {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_, err := s.Set(ctx, a.path(), []byte(fmt.Sprint(a.name, ":", s.ID(), ":", n)), api.AnyGeneration, api.SetOptions{})
		cancel()
		if err == nil || !errors.Is(err, api.ErrOutcomeUnknown) {
			a.pause(500 * time.Millisecond)
		}
	}
}

func (a *actor) reads(s *Session) {
	for a.goesOn(s) {
		path := a.path()
		least := a.written.of(path)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		f, err := s.Get(ctx, path)
		cancel()
		if err == nil {
			a.check(path, &f, least)
		}
		a.pause(30 * time.Millisecond)
	}
}

// holdsVersions relies on Versions for as long as they are current.
func (a *actor) holdsVersions(s *Session) {
	for a.goesOn(s) {
		path := a.path()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		f, v, err := s.GetVersion(ctx, path)
		cancel()
		for err == nil && v != nil && a.goesOn(s) {
			written := a.written.of(path)
			valid := s.Valid()
			if !v.Current() {
				break
			}
			if valid && f.Generation < written {
				a.t.Errorf("%s: the Version of generation %d is current, and %d was written before", path, f.Generation, written)
			}
			time.Sleep(time.Millisecond)
		}
		a.pause(30 * time.Millisecond)
	}
}

// check fails unless the read file is at least as new as what had been written, by any client,
// before the read began: least is its generation.
func (a *actor) check(path string, f *api.File, least uint64) {
	if f.Generation < least {
		a.t.Errorf("%s: read generation %d, and %d had been written before", path, f.Generation, least)
	}
	if data, ok := a.written.data(path, f.Generation); ok && data != string(f.Data) {
		a.t.Errorf("%s: read %q, generation %d is %q", path, f.Data, f.Generation, data)
	}
}
