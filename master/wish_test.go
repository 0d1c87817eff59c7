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

// TestRequestEnds: a requested move ends when the tablet is served where it is to be, a merge when the lower row is gone, and each
// one with an error when it cannot be done any more.
func TestRequestEnds(t *testing.T) {
	const open = "open"
	for name, c := range map[string]struct {
		w      wish
		change func(s *TabletState)
		want   any // an error, nil, or open
	}{
		"a move that is made":          {wish{key: userKey(1), node: "b"}, func(*TabletState) {}, nil},
		"a move to be made":            {wish{key: userKey(0), node: "b"}, func(*TabletState) {}, open},
		"a move that METADATA has not": {wish{key: userKey(1), node: "b"}, func(s *TabletState) { s.Tablets[3].Server = "a" }, open},
		"a move that is not served":    {wish{key: userKey(1), node: "b"}, func(s *TabletState) { s.Servers[2].Has = nil }, open},
		"a move of no tablet":          {wish{key: userKey(9), node: "b"}, func(*TabletState) {}, ErrGone},
		"the same, METADATA unread":    {wish{key: userKey(9), node: "b"}, func(s *TabletState) { s.Whole = false }, open},
		"a move to no node":            {wish{key: userKey(0), node: "z"}, func(*TabletState) {}, ErrNotAlive},
		"a move to a draining node":    {wish{key: userKey(0), node: "b"}, func(s *TabletState) { s.Servers[2].Leaving = true }, ErrNotAlive},
		"a move to a METADATA server":  {wish{key: userKey(0), node: "m"}, func(*TabletState) {}, ErrNotAlive},
		"a merge to be made":           {wish{lower: userKey(0), key: userKey(1)}, func(*TabletState) {}, open},
		"a merge that is made":         {wish{lower: userKey(9), key: userKey(1)}, func(*TabletState) {}, nil},
		"the same merge, unread":       {wish{lower: userKey(9), key: userKey(1)}, func(s *TabletState) { s.Whole = false }, open},
		"a merge without the upper":    {wish{lower: userKey(0), key: userKey(9)}, func(*TabletState) {}, ErrGone},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAssigner(Config{}, nil)
			w, err := a.take(&c.w)
			if err != nil {
				t.Fatal(err)
			}
			s := servedState(holding("a", heldFrom(0, 1, 0)...), holding("b", heldFrom(1, 1, 0)...))
			c.change(s)
			a.settleWishes(s, []*wish{w})
			got := any(open)
			if w.over {
				if got = nil; w.err != nil {
					got = w.err
				}
			}
			if got != c.want {
				t.Errorf("%s: it is %v, want %v", name, got, c.want)
			}
			// A move is remembered, or planned; a merge is planned until it ends.
			if _, pin := s.Pins[w.key]; pin != (w.lower == "" && w.err == nil) {
				t.Errorf("%s: pinned is %v", name, s.Pins)
			}
			if planned := len(s.Unions) == 1; planned != (w.lower != "" && got == open) {
				t.Errorf("%s: merges are %v", name, s.Unions)
			}
			time.Sleep(1)
			a.settleWishes(s, a.mu.wishes)
			if kept := len(a.mu.wishes) == 1; kept != (got == open || got == nil && w.lower == "") {
				t.Errorf("%s: kept are %d requests", name, len(a.mu.wishes))
			}
		})
	}
}

// TestRequestTimes: a request is given up after five minutes, and a move that was made is remembered for ten.
func TestRequestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAssigner(Config{}, nil)
		state := func() *TabletState {
			return servedState(holding("a", heldFrom(0, 1, 0)...), holding("b", heldFrom(1, 1, 0)...))
		}
		late, err := a.take(&wish{key: userKey(0), node: "b"})
		done, err2 := a.take(&wish{key: userKey(1), node: "b"})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		settle := func() *TabletState {
			s := state()
			a.settleWishes(s, a.mu.wishes)
			return s
		}
		settle()
		time.Sleep(wishTimeout)
		if settle(); late.over {
			t.Errorf("given up early: %v", late.err)
		}
		time.Sleep(1)
		if settle(); !late.over || late.err == nil {
			t.Error("it is not given up after five minutes")
		}
		time.Sleep(moveRemembered - wishTimeout - 1)
		if s := settle(); s.Pins[userKey(1)] != "b" {
			t.Errorf("a move is forgotten before ten minutes: %v", s.Pins)
		}
		time.Sleep(1)
		settle()
		if s := settle(); len(s.Pins) > 0 || done.err != nil || len(a.mu.wishes) > 0 {
			t.Errorf("after ten minutes pinned are %v, and there are %d requests", s.Pins, len(a.mu.wishes))
		}
	})
}

// TestRequestFailures: a request is given up with the error of its fifth order that fails in a row. Orders for other tablets, and
// those for servers, do not count.
func TestRequestFailures(t *testing.T) {
	failed := errors.New("disk is full")
	fail := func(a *assigner, n int, o Order) {
		for range n {
			a.ordered(&o, failed)
		}
	}
	mine := Order{Kind: Unload, Tablet: Tablet{Key: "b"}}
	for name, c := range map[string]struct {
		w    wish
		do   func(a *assigner)
		over bool
	}{
		"four":               {wish{key: "b", node: "n1"}, func(a *assigner) { fail(a, 4, mine) }, false},
		"five":               {wish{key: "b", node: "n1"}, func(a *assigner) { fail(a, 5, mine) }, true},
		"of the lower":       {wish{lower: "b", key: "c"}, func(a *assigner) { fail(a, 5, mine) }, true},
		"with one between":   {wish{key: "b", node: "n1"}, func(a *assigner) { fail(a, 4, mine); a.ordered(&mine, nil); fail(a, 4, mine) }, false},
		"of another":         {wish{key: "c", node: "n1"}, func(a *assigner) { fail(a, 9, mine) }, false},
		"of a recovery":      {wish{key: "", node: "n1"}, func(a *assigner) { fail(a, 9, Order{Kind: Recover, Server: "dead"}) }, false},
		"of forgetting logs": {wish{key: "", node: "n1"}, func(a *assigner) { fail(a, 9, Order{Kind: Forget, Server: "dead"}) }, false},
	} {
		a := newAssigner(Config{}, nil)
		_, err := a.take(&wish{key: "another", node: "n1"})
		w, err2 := a.take(&c.w)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		c.do(a)
		if w.over != c.over || c.over && !errors.Is(w.err, failed) {
			t.Errorf("%s: over is %v, with %v", name, w.over, w.err)
		}
	}
}
