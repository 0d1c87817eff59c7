package logproto

import (
	"errors"
	"testing"
)

// fencedAt and shortOf are FencedError and ShortError in a form that errors.Is compares.
type (
	fencedAt uint64
	shortOf  int64
)

func (e fencedAt) Error() string { return (&FencedError{Epoch: uint64(e)}).Error() }
func (e shortOf) Error() string  { return (&ShortError{Length: int64(e)}).Error() }

// outcome returns an error of a replica in a form that errors.Is compares.
func outcome(err error) error {
	var fenced *FencedError
	var short *ShortError
	switch {
	case errors.As(err, &fenced):
		return fencedAt(fenced.Epoch)
	case errors.As(err, &short):
		return shortOf(short.Length)
	}
	return err
}

// TestReplicaOpens: a replica is opened at the node's fence or above, and again only by the writer
// that opened it, before the first append.
func TestReplicaOpens(t *testing.T) {
	var r Replica
	r.Add(&ReplicaExtent{Seq: 4, Meta: Meta{Epoch: 5}})
	r.Add(&ReplicaExtent{Seq: 2, Meta: Meta{Epoch: 5, Started: true}})
	r.Add(&ReplicaExtent{Seq: 3, Meta: Meta{Epoch: 4, Fence: 5, Sealed: true}})
	for _, c := range []struct {
		name  string
		seq   uint64
		epoch uint64
		fresh bool
		err   error
	}{
		{"a new extent", 9, 5, true, nil},
		{"at a higher epoch", 9, 6, true, nil},
		{"at a lower epoch", 9, 4, false, fencedAt(5)},
		{"again", 4, 5, false, nil},
		{"by another writer", 4, 6, false, ErrExtentExists},
		{"after it was started", 2, 5, false, ErrExtentExists},
		{"after it was cut", 3, 5, false, ErrExtentExists},
	} {
		meta, fresh, err := r.NextOpen(OpenRequest{Seq: c.seq, Epoch: c.epoch})
		if fresh != c.fresh || !errors.Is(outcome(err), c.err) || err == nil && meta != (Meta{Epoch: c.epoch}) {
			t.Errorf("%s: %+v, new %t, %v; want new %t, %v", c.name, meta, fresh, err, c.fresh, c.err)
		}
	}
	r.Remove(3)
	if r.Find(3) != nil || r.Find(2) == nil || r.Find(4) == nil || r.Find(9) != nil {
		t.Error("the extents 2 and 4 are not what is left")
	}
}

// TestReplicaFences: a fence is repeated at its own epoch and never lowered. It fences the extents
// of lower epochs that are not cut, and reports these and those that are cut. L3.
func TestReplicaFences(t *testing.T) {
	r := Replica{Fence: 5}
	for epoch, want := range map[uint64]error{4: fencedAt(5), 5: nil} {
		if err := r.BeginFence(FenceRequest{epoch}); !errors.Is(outcome(err), want) || r.Fence != 5 {
			t.Errorf("a fence of epoch %d: %v, at %d", epoch, err, r.Fence)
		}
	}
	for name, c := range map[string]struct {
		meta         Meta
		need, report bool
	}{
		"of a lower epoch":    {Meta{Epoch: 6}, true, false},
		"of the same epoch":   {Meta{Epoch: 7}, false, false},
		"of a higher epoch":   {Meta{Epoch: 8}, false, false},
		"fenced lower":        {Meta{Epoch: 5, Fence: 6}, true, false},
		"fenced already":      {Meta{Epoch: 6, Fence: 7}, false, true},
		"fenced higher":       {Meta{Epoch: 6, Fence: 8}, false, true},
		"cut":                 {Meta{Epoch: 6, Sealed: true}, false, true},
		"cut and fenced high": {Meta{Epoch: 6, Fence: 9, Sealed: true}, false, true},
	} {
		x := &ReplicaExtent{Seq: 1, Meta: c.meta, Durable: 3, Queued: 5}
		want := c.meta
		if c.need {
			want.Fence = 7
		}
		meta, need := x.NextFence(FenceRequest{7})
		if need != c.need || meta != want {
			t.Errorf("an extent %s: %+v, needed %t", name, meta, need)
		}
		r := Replica{Extents: []*ReplicaExtent{x}}
		if n := len(r.States(FenceRequest{7})); (n == 1) != c.report {
			t.Errorf("an extent %s: %d states before it is fenced", name, n)
		}
	}
}

// TestReplicaAppends: a replica accepts bytes that follow its own, from its own writer and from the
// start of the extent on, and reports those that it has already. L4.
func TestReplicaAppends(t *testing.T) {
	fresh := func() *ReplicaExtent { return &ReplicaExtent{Seq: 1, Meta: Meta{Epoch: 5}} }
	queued := func() *ReplicaExtent { // positions 100 to 110, not durable
		x := fresh()
		if _, err := x.Append(AppendRequest{1, 5, 100, 100, 110}); err != nil {
			t.Fatal(err)
		}
		return x
	}
	durable := func() *ReplicaExtent {
		x := queued()
		x.Flushed(10)
		return x
	}
	with := func(x *ReplicaExtent, f func(x *ReplicaExtent)) func() *ReplicaExtent {
		return func() *ReplicaExtent { y := *x; f(&y); return &y }
	}
	for _, c := range []struct {
		name   string
		x      func() *ReplicaExtent
		m      AppendRequest
		again  bool
		err    error
		queued int64
	}{
		{"the first", fresh, AppendRequest{1, 5, 100, 100, 103}, false, nil, 3},
		{"the first, behind the start", fresh, AppendRequest{1, 5, 100, 103, 105}, false, ErrGap, 0},
		{"the first, of nothing", fresh, AppendRequest{1, 5, 100, 100, 100}, false, nil, 0},
		{"the next", queued, AppendRequest{1, 5, 100, 110, 112}, false, nil, 12},
		{"the next, after a flush", durable, AppendRequest{1, 5, 100, 110, 112}, false, nil, 12},
		{"with another start", queued, AppendRequest{1, 5, 101, 110, 112}, false, ErrMismatch, 10},
		{"with another start, after a flush", durable, AppendRequest{1, 5, 101, 110, 112}, false, ErrMismatch, 10},
		{"the same", queued, AppendRequest{1, 5, 100, 100, 110}, true, nil, 10},
		{"a part of the same", queued, AppendRequest{1, 5, 100, 102, 109}, true, nil, 10},
		{"of nothing", queued, AppendRequest{1, 5, 100, 110, 110}, true, nil, 10},
		{"with a gap", queued, AppendRequest{1, 5, 100, 111, 112}, false, ErrGap, 10},
		{"with an overlap", queued, AppendRequest{1, 5, 100, 109, 112}, false, ErrGap, 10},
		{"backwards", queued, AppendRequest{1, 5, 100, 113, 112}, false, ErrMismatch, 10},
		{"of a higher epoch", queued, AppendRequest{1, 6, 100, 110, 112}, false, ErrNoExtent, 10},
		{"of a lower epoch", queued, AppendRequest{1, 4, 100, 110, 112}, false, fencedAt(5), 10},
		{"fenced", with(queued(), func(x *ReplicaExtent) { x.Fence = 6 }), AppendRequest{1, 5, 100, 110, 112}, false, fencedAt(6), 10},
		{"fenced at its epoch", with(queued(), func(x *ReplicaExtent) { x.Fence = 5 }), AppendRequest{1, 5, 100, 110, 112}, false, nil, 12},
		{"cut", with(durable(), func(x *ReplicaExtent) { x.Sealed, x.Length = true, 10 }), AppendRequest{1, 5, 100, 110, 112}, false, ErrExtentClosed, 10},
		{"after a restart", with(durable(), func(x *ReplicaExtent) { x.Restart(x.Meta, 10) }), AppendRequest{1, 5, 100, 110, 112}, false, ErrExtentClosed, 10},
	} {
		x := c.x()
		again, err := x.Append(c.m)
		if again != c.again || !errors.Is(outcome(err), c.err) || x.Queued != c.queued {
			t.Errorf("%s: again %t, %v, %d bytes; want again %t, %v, %d bytes", c.name, again, err, x.Queued, c.again, c.err, c.queued)
		}
	}
}

// TestReplicaCuts: a replica is cut once, to the recorded start and length. One that lacks bytes is
// refilled after those that belong to the extent. L3, L4.
func TestReplicaCuts(t *testing.T) {
	extent := func(f func(x *ReplicaExtent)) ReplicaExtent { // positions 100 to 110 of epoch 5, and two more bytes in memory
		x := ReplicaExtent{Seq: 1, Meta: Meta{Epoch: 5, Started: true, Start: 100}, Durable: 10, Queued: 12}
		if f != nil {
			f(&x)
		}
		return x
	}
	fresh := func(x *ReplicaExtent) { x.Started, x.Start, x.Durable, x.Queued = false, 0, 0, 0 }
	sealed := func(x *ReplicaExtent) { x.Sealed, x.Length = true, 10 }
	for _, c := range []struct {
		name string
		x    ReplicaExtent
		m    CutRequest
		need bool
		err  error // of the cut
		from int64 // of a refill
	}{
		{"to all of it", extent(nil), CutRequest{1, 6, 100, 10}, true, nil, 10},
		{"to a part", extent(nil), CutRequest{1, 6, 100, 9}, true, nil, 9},
		{"to nothing", extent(nil), CutRequest{1, 6, 100, 0}, true, nil, 0},
		{"by its writer", extent(nil), CutRequest{1, 5, 100, 10}, true, nil, 10},
		{"by an older writer", extent(nil), CutRequest{1, 4, 100, 10}, false, fencedAt(5), 0},
		{"to more", extent(nil), CutRequest{1, 6, 100, 11}, true, shortOf(10), 10},
		{"at another start", extent(nil), CutRequest{1, 6, 101, 10}, true, shortOf(0), 0},
		{"to more at another start", extent(nil), CutRequest{1, 6, 101, 11}, true, shortOf(0), 0},
		{"to nothing at another start", extent(nil), CutRequest{1, 6, 101, 0}, true, nil, 0},
		{"not started, to nothing", extent(fresh), CutRequest{1, 6, 100, 0}, true, nil, 0},
		{"not started, to more", extent(fresh), CutRequest{1, 6, 100, 3}, true, shortOf(0), 0},
		{"not started at 0, with bytes", extent(func(x *ReplicaExtent) { x.Started, x.Start = false, 0 }), CutRequest{1, 6, 0, 11}, true, shortOf(0), 0},
		{"again", extent(sealed), CutRequest{1, 6, 100, 10}, false, nil, 0},
		{"again by an older writer", extent(sealed), CutRequest{1, 4, 100, 10}, false, nil, 0},
		{"again, longer", extent(sealed), CutRequest{1, 6, 100, 11}, false, ErrMismatch, 0},
		{"again, shorter", extent(sealed), CutRequest{1, 6, 100, 9}, false, ErrMismatch, 0},
		{"again, at another start", extent(sealed), CutRequest{1, 6, 101, 10}, false, ErrMismatch, 0},
	} {
		after := Meta{Epoch: 5, Fence: c.m.Epoch, Started: true, Start: c.m.Start, Sealed: true, Length: c.m.Length}
		x := c.x
		meta, need, err := x.NextCut(c.m)
		if want := c.need && c.err == nil; need != want || !errors.Is(outcome(err), c.err) || need && meta != after || !need && meta != c.x.Meta {
			t.Errorf("cut %s: %+v, needed %t, %v; want needed %t, %v", c.name, meta, need, err, want, c.err)
		}
		refillErr := c.err
		if c.need {
			refillErr = nil
		}
		meta, from, need, err := x.NextRefill(c.m)
		if need != c.need || from != c.from || !errors.Is(outcome(err), refillErr) || need && meta != after {
			t.Errorf("refill %s: %+v, needed %t from %d, %v; want needed %t from %d, %v", c.name, meta, need, from, err, c.need, c.from, refillErr)
		}
	}
}

// TestReplicaCommits: queued bytes are discarded when an extent is fenced at a higher epoch or cut,
// and not before. The node's fence is the highest of its extents.
func TestReplicaCommits(t *testing.T) {
	for name, c := range map[string]struct {
		meta            Meta
		durable, queued int64
		fence           uint64
	}{
		"as it was":           {Meta{Epoch: 5, Started: true}, 10, 12, 5},
		"fenced at its epoch": {Meta{Epoch: 5, Fence: 5, Started: true}, 10, 12, 5},
		"fenced":              {Meta{Epoch: 5, Fence: 6, Started: true}, 10, 10, 6},
		"cut":                 {Meta{Epoch: 5, Fence: 5, Started: true, Sealed: true, Length: 7}, 7, 7, 5},
		"cut at a low epoch":  {Meta{Epoch: 5, Fence: 3, Started: true, Sealed: true, Length: 7}, 7, 7, 5},
	} {
		r, x := Replica{Fence: 4}, &ReplicaExtent{Seq: 1, Durable: 10, Queued: 12}
		r.Commit(x, c.meta)
		if x.Meta != c.meta || x.Durable != c.durable || x.Queued != c.queued || r.Fence != c.fence {
			t.Errorf("%s: %+v, fence %d", name, *x, r.Fence)
		}
	}
}

// TestReplicaState: the state of a restarted replica is marked as scanned, unless it was cut.
func TestReplicaState(t *testing.T) {
	for _, c := range []struct{ closed, sealed, scanned bool }{{false, false, false}, {true, false, true}, {false, true, false}, {true, true, false}} {
		x := ReplicaExtent{Seq: 3, Meta: Meta{Started: true, Start: 100, Sealed: c.sealed}, Durable: 7, Queued: 9, Closed: c.closed}
		if got, want := x.State(), (State{Seq: 3, Started: true, Start: 100, Length: 7, Scanned: c.scanned}); got != want {
			t.Errorf("closed %t, cut %t: %+v, want %+v", c.closed, c.sealed, got, want)
		}
	}
}

// TestReplicaReads: an extent is served only if it was cut to the recorded start and length. L4.
func TestReplicaReads(t *testing.T) {
	cut := Meta{Started: true, Start: 100, Sealed: true, Length: 7}
	uncut := cut
	uncut.Sealed = false
	for name, c := range map[string]struct {
		meta          Meta
		start, length int64
		err           error
	}{
		"as recorded":    {cut, 100, 7, nil},
		"not cut":        {uncut, 100, 7, ErrUncut},
		"another start":  {cut, 101, 7, ErrUncut},
		"another length": {cut, 100, 8, ErrUncut},
	} {
		x := ReplicaExtent{Meta: c.meta, Durable: 7, Queued: 7}
		if err := x.Read(c.start, c.length); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
