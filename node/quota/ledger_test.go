package quota

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// ledgerRun is a master's ledger and servers that report their usage twice a second.
type ledgerRun struct {
	Ledger
	now     time.Time
	epoch   uint64
	alive   int
	servers map[string]map[uint64]int64
	bounds  []Bound
}

// after returns the verdicts after the given time.
func (r *ledgerRun) after(d time.Duration) (over map[uint64]Over) {
	const step = 250 * time.Millisecond
	for end := r.now.Add(d); ; r.now = r.now.Add(step) {
		if r.now.UnixMilli()%500 == 0 {
			for name, tables := range r.servers {
				r.Note(r.now, r.epoch, name, maps.Clone(tables))
			}
		}
		over = r.Over(r.now, r.alive, r.bounds)
		if !r.now.Before(end) {
			return over
		}
	}
}

func newLedgerRun() *ledgerRun {
	return &ledgerRun{now: time.Unix(1000, 0), epoch: 1, alive: 3, servers: map[string]map[uint64]int64{}, bounds: []Bound{
		{Key: "t1", Quota: "one", Limit: 100, Tables: []uint64{1}}, {Key: "uann", Quota: "ann", Limit: 1000, Tables: []uint64{1, 2}},
	}}
}

// TestLedger: usage is summed over servers. A new master accepts writes into no exceeded quota. A
// quota whose tables shrank accepts writes again shortly afterwards.
func TestLedger(t *testing.T) {
	r := newLedgerRun()
	if r.after(0) != nil {
		t.Error("a verdict before servers have reported")
	}
	r.servers["a"] = map[uint64]int64{1: 60, 2: 10, 3: 1e9}
	r.servers["b"] = map[uint64]int64{1: 39, 2: 10}
	if r.after(time.Second) != nil {
		t.Error("a new master knows at once")
	}
	if o := r.after(learnPeriod); o == nil || len(o) != 0 {
		t.Errorf("99 of 100: %v", o)
	}
	r.servers["b"][1] = 40
	if o := r.after(time.Second); len(o) != 0 {
		t.Errorf("100 of 100 just now: %v", o)
	}
	if o := r.after(highFor); len(o) != 1 || o[1] != (Over{"one", 100, 100}) {
		t.Errorf("100 of 100 for a while: %v", o)
	}
	r.servers["a"][1] = 10
	if o := r.after(fullFor / 2); len(o) != 1 || o[1].Used != 50 {
		t.Errorf("just now shrunk: %v", o)
	}
	if o := r.after(fullFor); len(o) != 0 {
		t.Errorf("shrunk: %v", o)
	}
	r.servers["b"][2] = 990
	if o := r.after(highFor + 500*time.Millisecond); len(o) != 2 || o[1].Quota != "ann" || o[2] != (Over{"ann", 1000, 1050}) {
		t.Errorf("of two tables: %v", o)
	}
	r.bounds[1].Limit = 1051
	if o := r.after(500 * time.Millisecond); len(o) != 0 {
		t.Errorf("just now raised: %v", o)
	}
	r.bounds[1].Limit = 1000
	if o := r.after(highFor + 500*time.Millisecond); len(o) != 2 {
		t.Errorf("lowered again: %v", o)
	}
	delete(r.servers, "b")
	r.Forget(r.now, "b")
	if o := r.after(retainFor - time.Second); len(o) != 2 {
		t.Errorf("a server is gone, and its tablets are not reported yet: %v", o)
	}
	if o := r.after(2 * fullFor); len(o) != 0 {
		t.Errorf("long after a server is gone: %v", o)
	}
	if all := r.Servers(); len(all) != 1 || all[0] != "a" {
		t.Errorf("servers %v", all)
	}
	r.epoch, r.servers["a"][1] = 2, 500
	if r.after(time.Second) != nil {
		t.Error("a master that is new again knows at once")
	}
	r.alive, r.servers["b"] = 2, map[uint64]int64{1: 0}
	if o := r.after(500 * time.Millisecond); len(o) != 1 {
		t.Errorf("by a master with all reports: %v", o)
	}
	r.Reset()
	if r.Over(r.now, r.alive, r.bounds) != nil {
		t.Error("verdicts though all was forgotten")
	}
	r.epoch, r.alive = 3, 0
	if o := r.after(learnPeriod); len(o) != 1 {
		t.Errorf("by another master: %v", o)
	}
}

// TestLedgerOfSilence: while a server with a part of a table does not report, the table counts for
// no less, for a while, also if several servers stop one after the other. It counts for its
// reported size once they report again.
func TestLedgerOfSilence(t *testing.T) {
	r := newLedgerRun()
	r.bounds = r.bounds[:1]
	parts := map[string]map[uint64]int64{"a": {1: 60}, "b": {1: 30}, "c": {1: 10}}
	report := func(names ...string) {
		r.servers = map[string]map[uint64]int64{}
		for _, name := range names {
			r.servers[name] = parts[name]
		}
	}
	full := func(what string, after time.Duration, want bool) {
		t.Helper()
		if o := r.after(after); (len(o) > 0) != want || want && o[1].Used < 100 {
			t.Errorf("%s: %v", what, o)
		}
	}
	report("a", "b", "c")
	full("all report", 2*learnPeriod, true)
	report("b", "c")
	full("one is silent", retainFor/2, true)
	report("c")
	full("two are", retainFor/2-10*time.Second, true)
	report("a", "c")
	parts["a"][1] = 20
	full("the first reports less again", 2*fullFor, false)
	report("b", "c")
	parts["b"][1] = 90 // with the tablets of the first
	full("another has the tablets of one that is silent", 2*fullFor, true)
	parts["b"][1] = 50
	full("less than with the one that is silent", retainFor/2, false)
	report()
	full("no server reports", 2*retainFor, false)
}

// TestLedgerOfMoves: a table below its quota stays writable while a tablet moves or its server
// dies, and an exceeded quota stays exceeded.
func TestLedgerOfMoves(t *testing.T) {
	const bytes = 60
	for _, test := range []struct {
		what  string
		limit int64
		full  bool
		move  func(r *ledgerRun)
		later func(r *ledgerRun)
	}{
		{"reported by both", 100, false, func(r *ledgerRun) { r.servers["b"] = map[uint64]int64{1: bytes} }, func(r *ledgerRun) { r.servers["a"] = nil }},
		{"reported by none", bytes, true, func(r *ledgerRun) { r.servers["a"] = nil }, func(r *ledgerRun) { r.servers["b"] = map[uint64]int64{1: bytes} }},
		{"of one that died", 100, false, func(r *ledgerRun) { delete(r.servers, "a"); r.servers["b"] = map[uint64]int64{1: bytes} }, func(*ledgerRun) {}},
	} {
		t.Run(test.what, func(t *testing.T) {
			r := newLedgerRun()
			r.bounds = []Bound{{Key: "t1", Quota: "one", Limit: test.limit, Tables: []uint64{1}}}
			r.servers["a"], r.servers["b"] = map[uint64]int64{1: bytes}, nil
			r.after(2 * learnPeriod)
			test.move(r)
			for i := range 40 {
				if i == 4 {
					test.later(r)
				}
				if o := r.after(250 * time.Millisecond); len(o) > 0 != test.full {
					t.Errorf("after %d ms: %v", 250*(i+1), o)
				}
			}
		})
	}
}

// TestLedgerOfTwo: when the quota named by a verdict is raised, another exceeded quota of the table
// applies at once.
func TestLedgerOfTwo(t *testing.T) {
	r := newLedgerRun()
	r.bounds[1].Limit = 100
	r.servers["a"] = map[uint64]int64{1: 200}
	if o := r.after(2 * learnPeriod); len(o) != 2 || o[1].Quota != "one" {
		t.Fatalf("both are used up: %v", o)
	}
	raised := slices.Clone(r.bounds)
	raised[0].Limit = 1000
	if o := r.Over(r.now, r.alive, raised); o[1] != (Over{"ann", 100, 200}) {
		t.Errorf("one of two was raised: %v", o)
	}
}

// TestOvershootOfBytes checks the bound of docs/operating.md: a table grows for at most 3 s after
// it has reached its quota. Three servers report twice a second, each at its own times, and learn
// of the verdict from the answers. Each accepts writes until then.
func TestOvershootOfBytes(t *testing.T) {
	const (
		servers, every, step = 3, 500 * time.Millisecond, 10 * time.Millisecond
		limit, perStep       = 300_000, 100 // of each server: 30,000 bytes a second
		bound                = 3 * time.Second
	)
	rng := seeded(t)
	longest := time.Duration(0)
	for range 200 {
		var l Ledger
		bounds := []Bound{{Key: "t1", Quota: "one", Limit: limit, Tables: []uint64{1}}}
		start := time.Unix(1000, 0).Add(time.Duration(rng.Int64N(int64(time.Second))))
		var phase [servers]time.Duration
		var used [servers]int64
		var refused [servers]bool
		for i := range phase {
			phase[i] = time.Duration(rng.Int64N(int64(every))) / step * step
		}
		reached := time.Duration(-1)
		total := int64(0)
		for at := time.Duration(0); refused != [servers]bool{true, true, true}; at += step {
			if at > time.Minute {
				t.Fatal("the table is never full")
			}
			for i := range servers {
				if !refused[i] {
					used[i] += perStep
					total += perStep
				}
				if total >= limit && reached < 0 {
					reached = at
				}
				if at%every == phase[i] {
					now := start.Add(at)
					l.Note(now, 1, string(rune('a'+i)), map[uint64]int64{1: used[i]})
					_, refused[i] = l.Over(now, servers, bounds)[1]
				}
			}
			if reached >= 0 {
				longest = max(longest, at-reached)
			}
		}
		if most := int64(servers * perStep * bound / step); total > limit+most {
			t.Errorf("a table of at most %d bytes grew to %d, not at most %d more: %v of writes", limit, total, most, bound)
		}
	}
	if longest > bound || longest < highFor {
		t.Errorf("a full table took writes for %v, not %v to %v", longest, highFor, bound)
	}
	t.Logf("a full table took writes for %v at most", longest)
}
