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

// submit submits a request and waits for its end.
func (m *masterView) submit(w *request) error {
	w, err := m.a.admit(w)
	if err != nil {
		return err
	}
	m.a.changed()
	<-w.ended
	return w.err
}

// some returns a user tablet and the one above it.
func (f *simCluster) some(rng *rand.Rand) (lower, upper string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Sorted(maps.Keys(f.rows))[2:]
	i := rng.IntN(len(keys) - 1)
	return keys[i], keys[i+1]
}

func (f *simCluster) serverOf(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if row := f.rows[key]; row != nil && f.servers[row.Server] != nil && f.servers[row.Server].has[key] != nil {
		return row.Server
	}
	return ""
}

// A requested move is executed and then pinned; a merge is executed wherever the two tablets are.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 12)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 3 {
			f.start()
		}
		view := &masterView{simCluster: f}
		_, end := runMaster(t, view, 1)
		f.wait(t, time.Minute)
		for i := range 12 { // all to one server
			lower, _ := f.some(rng)
			if err := view.submit(&request{key: lower, node: "n1"}); err != nil {
				t.Fatalf("move %d: %v", i, err)
			}
			if got := f.serverOf(lower); got != "n1.1" {
				t.Fatalf("move %d: tablet %q is on %q", i, lower, got)
			}
			f.write(i)
		}
		lower, upper := f.some(rng)
		if err := view.submit(&request{key: lower, node: "n2"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pinDuration - 2*time.Minute)
		if got := f.serverOf(lower); got != "n2.2" {
			t.Fatalf("tablet %q is on %q, not on the requested node", lower, got)
		}
		if err := view.submit(&request{key: upper, node: "n3"}); err != nil {
			t.Fatal(err)
		}
		if err := view.submit(&request{lower: lower, key: upper}); err != nil {
			t.Fatal(err)
		}
		if f.serverOf(lower) != "" || f.serverOf(upper) == "" || f.nowIn(lower) != upper {
			t.Fatalf("tablets %q and %q are not merged", lower, upper)
		}
		for _, x := range []struct {
			w    *request
			want error
		}{
			{&request{key: lower, node: "n1"}, ErrGone}, {&request{key: upper, node: "n9"}, ErrNotAlive}, {&request{lower: upper, key: lower}, ErrGone},
		} {
			if err := view.submit(x.w); !errors.Is(err, x.want) {
				t.Errorf("%+v: %v, want %v", x.w, err, x.want)
			}
		}
		f.wait(t, time.Minute)
		end()
		if err := view.submit(&request{key: upper, node: "n1"}); !errors.Is(err, ErrNotMaster) {
			t.Errorf("a request after the mastership: %v", err)
		}
		f.check(t)
	})
}

// Of two requests for one tablet the second is rejected, unless it is equal to the first.
func TestConflictingRequests(t *testing.T) {
	a := newAssigner(Config{}, &worldLock{})
	first, err := a.admit(&request{key: "b", node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := a.admit(&request{key: "b", node: "n1"}); same != first || err != nil {
		t.Errorf("the same request: %v", err)
	}
	for _, w := range []*request{{key: "b", node: "n2"}, {lower: "a", key: "b"}, {lower: "b", key: "c"}} {
		if _, err := a.admit(w); !errors.Is(err, ErrBusy) {
			t.Errorf("%+v: %v, want busy", w, err)
		}
	}
	if _, err := a.admit(&request{lower: "c", key: "d"}); err != nil {
		t.Errorf("a request about others: %v", err)
	}
	first.end(nil) // and it is pinned
	if w, err := a.admit(&request{key: "b", node: "n2"}); err != nil || w.over {
		t.Errorf("a request after another: %v", err)
	}
}

// A1, A2, A3 hold while tablets are moved and merged on request and servers die. Each request ends.
func TestRequestsUnderFaults(t *testing.T) {
	seed := masterSeed(t)
	merges := 0
	for i := range masterRuns(30) {
		synctest.Test(t, func(t *testing.T) {
			f := newSimCluster(rand.New(rand.NewPCG(seed, i)), 20)
			rng := rand.New(rand.NewPCG(seed, i+1<<32))
			f.lossy, f.flaky, f.ms = rng.IntN(40), rng.IntN(20), 20+rng.IntN(1000)
			for range 4 {
				f.start()
			}
			view := &masterView{simCluster: f}
			_, end := runMaster(t, view, 1)
			ctx, cancel := context.WithCancel(context.Background())
			var people sync.WaitGroup
			for p := range uint64(2) {
				mine := rand.New(rand.NewPCG(seed+p, i+2<<32))
				people.Go(func() {
					for ctx.Err() == nil {
						lower, upper := f.some(mine)
						w := &request{key: lower, node: []string{"n0", "n1", "n2", "n3", "n4"}[mine.IntN(5)]}
						if mine.IntN(6) == 0 {
							w = &request{lower: lower, key: upper}
						}
						_ = view.submit(w) // whatever the outcome
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

// TestRequestEnds: a requested move ends when the tablet is served at its destination, a merge when
// the lower row is gone, and each with an error when it has become impossible.
func TestRequestEnds(t *testing.T) {
	const open = "open"
	for name, c := range map[string]struct {
		w      request
		change func(s *TabletState)
		want   any // an error, nil, or open
	}{
		"a move that is made":          {request{key: userKey(1), node: "b"}, func(*TabletState) {}, nil},
		"a move to be made":            {request{key: userKey(0), node: "b"}, func(*TabletState) {}, open},
		"a move that METADATA has not": {request{key: userKey(1), node: "b"}, func(s *TabletState) { s.Tablets[3].Server = "a" }, open},
		"a move that is not served":    {request{key: userKey(1), node: "b"}, func(s *TabletState) { s.Servers[2].Has = nil }, open},
		"a move of no tablet":          {request{key: userKey(9), node: "b"}, func(*TabletState) {}, ErrGone},
		"the same, METADATA unread":    {request{key: userKey(9), node: "b"}, func(s *TabletState) { s.Whole = false }, open},
		"a move to no node":            {request{key: userKey(0), node: "z"}, func(*TabletState) {}, ErrNotAlive},
		"a move to a draining node":    {request{key: userKey(0), node: "b"}, func(s *TabletState) { s.Servers[2].Draining = true }, ErrNotAlive},
		"a move to a METADATA server":  {request{key: userKey(0), node: "m"}, func(*TabletState) {}, ErrNotAlive},
		"a merge to be made":           {request{lower: userKey(0), key: userKey(1)}, func(*TabletState) {}, open},
		"a merge that is made":         {request{lower: userKey(9), key: userKey(1)}, func(*TabletState) {}, nil},
		"the same merge, unread":       {request{lower: userKey(9), key: userKey(1)}, func(s *TabletState) { s.Whole = false }, open},
		"a merge without the upper":    {request{lower: userKey(0), key: userKey(9)}, func(*TabletState) {}, ErrGone},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAssigner(Config{}, nil)
			w, err := a.admit(&c.w)
			if err != nil {
				t.Fatal(err)
			}
			s := servedState(holding("a", heldFrom(0, 1, 0)...), holding("b", heldFrom(1, 1, 0)...))
			c.change(s)
			a.settleRequests(s, []*request{w})
			got := any(open)
			if w.over {
				if got = nil; w.err != nil {
					got = w.err
				}
			}
			if got != c.want {
				t.Errorf("%s: it is %v, want %v", name, got, c.want)
			}
			// A move is pinned or planned; a merge is planned until it ends.
			if _, pin := s.Pins[w.key]; pin != (w.lower == "" && w.err == nil) {
				t.Errorf("%s: pinned is %v", name, s.Pins)
			}
			if planned := len(s.PendingMerges) == 1; planned != (w.lower != "" && got == open) {
				t.Errorf("%s: merges are %v", name, s.PendingMerges)
			}
			time.Sleep(1)
			a.settleRequests(s, a.mu.requests)
			if kept := len(a.mu.requests) == 1; kept != (got == open || got == nil && w.lower == "") {
				t.Errorf("%s: kept are %d requests", name, len(a.mu.requests))
			}
		})
	}
}

// TestRequestTimes: a request is given up after five minutes, and a completed move is pinned for
// ten.
func TestRequestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAssigner(Config{}, nil)
		state := func() *TabletState {
			return servedState(holding("a", heldFrom(0, 1, 0)...), holding("b", heldFrom(1, 1, 0)...))
		}
		late, err := a.admit(&request{key: userKey(0), node: "b"})
		done, err2 := a.admit(&request{key: userKey(1), node: "b"})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		settle := func() *TabletState {
			s := state()
			a.settleRequests(s, a.mu.requests)
			return s
		}
		settle()
		time.Sleep(requestTimeout)
		if settle(); late.over {
			t.Errorf("given up early: %v", late.err)
		}
		time.Sleep(1)
		if settle(); !late.over || late.err == nil {
			t.Error("it is not given up after five minutes")
		}
		time.Sleep(pinDuration - requestTimeout - 1)
		if s := settle(); s.Pins[userKey(1)] != "b" {
			t.Errorf("a move is forgotten before ten minutes: %v", s.Pins)
		}
		time.Sleep(1)
		settle()
		if s := settle(); len(s.Pins) > 0 || done.err != nil || len(a.mu.requests) > 0 {
			t.Errorf("after ten minutes pinned are %v, and there are %d requests", s.Pins, len(a.mu.requests))
		}
	})
}

// TestRequestFailures: a request is given up with the error of its fifth consecutive failed order.
// Orders for other tablets, and orders for servers, do not count.
func TestRequestFailures(t *testing.T) {
	failed := errors.New("disk is full")
	fail := func(a *assigner, n int, o Order) {
		for range n {
			a.noteOrder(&o, failed)
		}
	}
	mine := Order{Kind: Unload, Tablet: Tablet{Key: "b"}}
	for name, c := range map[string]struct {
		w    request
		do   func(a *assigner)
		over bool
	}{
		"four":               {request{key: "b", node: "n1"}, func(a *assigner) { fail(a, 4, mine) }, false},
		"five":               {request{key: "b", node: "n1"}, func(a *assigner) { fail(a, 5, mine) }, true},
		"of the lower":       {request{lower: "b", key: "c"}, func(a *assigner) { fail(a, 5, mine) }, true},
		"with one between":   {request{key: "b", node: "n1"}, func(a *assigner) { fail(a, 4, mine); a.noteOrder(&mine, nil); fail(a, 4, mine) }, false},
		"of another":         {request{key: "c", node: "n1"}, func(a *assigner) { fail(a, 9, mine) }, false},
		"of a recovery":      {request{key: "", node: "n1"}, func(a *assigner) { fail(a, 9, Order{Kind: Recover, Server: "dead"}) }, false},
		"of forgetting logs": {request{key: "", node: "n1"}, func(a *assigner) { fail(a, 9, Order{Kind: RemoveLogs, Server: "dead"}) }, false},
	} {
		a := newAssigner(Config{}, nil)
		_, err := a.admit(&request{key: "another", node: "n1"})
		w, err2 := a.admit(&c.w)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		c.do(a)
		if w.over != c.over || c.over && !errors.Is(w.err, failed) {
			t.Errorf("%s: over is %v, with %v", name, w.over, w.err)
		}
	}
}
