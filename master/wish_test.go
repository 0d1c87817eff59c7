package master

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wanted has somebody want something of tablets, and wait for it.
func (m *masterView) wanted(w *wish) error {
	w, err := m.a.take(w)
	if err != nil {
		return err
	}
	m.a.changed()
	<-w.ended
	return w.err
}

// some returns a user's tablet and the one above it.
func (f *tabletFleet) some(rng *rand.Rand) (lower, upper string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Sorted(maps.Keys(f.rows))[2:]
	i := rng.IntN(len(keys) - 1)
	return keys[i], keys[i+1]
}

func (f *tabletFleet) serverOf(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if row := f.rows[key]; row != nil && f.servers[row.Server] != nil && f.servers[row.Server].has[key] != nil {
		return row.Server
	}
	return ""
}

// A move that somebody wants is made, and the balance lets it be; a merge is made wherever the two are.
func TestWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTabletFleet(rand.New(rand.NewPCG(1, 1)), 12)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 3 {
			f.start()
		}
		view := &masterView{tabletFleet: f}
		_, end := reignOf(t, view, 1)
		f.wait(t, time.Minute)
		for i := range 12 { // all to one server
			lower, _ := f.some(rng)
			if err := view.wanted(&wish{key: lower, node: "n1"}); err != nil {
				t.Fatalf("move %d: %v", i, err)
			}
			if got := f.serverOf(lower); got != "n1.1" {
				t.Fatalf("move %d: tablet %q is on %q", i, lower, got)
			}
			f.write(i)
		}
		lower, upper := f.some(rng)
		if err := view.wanted(&wish{key: lower, node: "n2"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(moveRemembered - 2*time.Minute)
		if got := f.serverOf(lower); got != "n2.2" {
			t.Fatalf("tablet %q is on %q, where nobody wants it", lower, got)
		}
		if err := view.wanted(&wish{key: upper, node: "n3"}); err != nil {
			t.Fatal(err)
		}
		if err := view.wanted(&wish{lower: lower, key: upper}); err != nil {
			t.Fatal(err)
		}
		if f.serverOf(lower) != "" || f.serverOf(upper) == "" || f.nowIn(lower) != upper {
			t.Fatalf("tablets %q and %q are not merged", lower, upper)
		}
		for _, x := range []struct {
			w    *wish
			want error
		}{
			{&wish{key: lower, node: "n1"}, ErrGone}, {&wish{key: upper, node: "n9"}, ErrNotAlive}, {&wish{lower: upper, key: lower}, ErrGone},
		} {
			if err := view.wanted(x.w); !errors.Is(err, x.want) {
				t.Errorf("%+v: %v, want %v", x.w, err, x.want)
			}
		}
		f.wait(t, time.Minute)
		end()
		if err := view.wanted(&wish{key: upper, node: "n1"}); !errors.Is(err, ErrNotMaster) {
			t.Errorf("a wish after the mastership: %v", err)
		}
		f.check(t)
	})
}

// Two wishes about one tablet: the second is refused, unless it is the same.
func TestWishesMeet(t *testing.T) {
	a := newAssigner(Config{}, &worldLock{})
	first, err := a.take(&wish{key: "b", node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := a.take(&wish{key: "b", node: "n1"}); same != first || err != nil {
		t.Errorf("the same wish: %v", err)
	}
	for _, w := range []*wish{{key: "b", node: "n2"}, {lower: "a", key: "b"}, {lower: "b", key: "c"}} {
		if _, err := a.take(w); !errors.Is(err, ErrBusy) {
			t.Errorf("%+v: %v, want busy", w, err)
		}
	}
	if _, err := a.take(&wish{lower: "c", key: "d"}); err != nil {
		t.Errorf("a wish about others: %v", err)
	}
	first.end(nil) // and it is remembered
	if w, err := a.take(&wish{key: "b", node: "n2"}); err != nil || w.over {
		t.Errorf("a wish after another: %v", err)
	}
}

// A1, A2, A3 hold while tablets are moved and merged on people's word and servers die; each wish ends.
func TestWishesUnderFaults(t *testing.T) {
	seed := masterSeed(t)
	merges := 0
	for i := range masterRuns(30) {
		synctest.Test(t, func(t *testing.T) {
			f := newTabletFleet(rand.New(rand.NewPCG(seed, i)), 20)
			rng := rand.New(rand.NewPCG(seed, i+1<<32))
			f.lossy, f.flaky, f.ms = rng.IntN(40), rng.IntN(20), 20+rng.IntN(1000)
			for range 4 {
				f.start()
			}
			view := &masterView{tabletFleet: f}
			_, end := reignOf(t, view, 1)
			ctx, cancel := context.WithCancel(context.Background())
			var people sync.WaitGroup
			for p := range uint64(2) {
				mine := rand.New(rand.NewPCG(seed+p, i+2<<32))
				people.Go(func() {
					for ctx.Err() == nil {
						lower, upper := f.some(mine)
						w := &wish{key: lower, node: []string{"n0", "n1", "n2", "n3", "n4"}[mine.IntN(5)]}
						if mine.IntN(6) == 0 {
							w = &wish{lower: lower, key: upper}
						}
						_ = view.wanted(w) // whatever becomes of it
						time.Sleep(time.Duration(mine.IntN(2000)) * time.Millisecond)
					}
				})
			}
			faults(f, rng, func() {})
			cancel()
			people.Wait()
			f.wait(t, 5*time.Minute)
			end()
			f.check(t)
			merges += len(f.merged)
		})
	}
	if merges == 0 {
		t.Error("no tablets were merged")
	}
}
