package dataapi

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// scanOf is a scan of a user whose keys take so many bytes.
func scanOf(owner string, bytes int) *scan {
	start := make([]byte, bytes)
	return &scan{owner: owner, rg: tablet.Range{Start: start}, resume: start}
}

// idle opens a cursor that no call uses.
func (cs *cursors) idle(t *testing.T, s *scan) *cursor {
	t.Helper()
	c, err := cs.begin(s)
	if err != nil {
		t.Fatal(err)
	}
	cs.put(c)
	return c
}

// wantOverloaded fails the test unless err is an OverloadedError with these values.
func wantOverloaded(t *testing.T, err error, says ...string) {
	t.Helper()
	var e *api.OverloadedError
	if !errors.As(err, &e) || e.RetryAfter == 0 {
		t.Fatalf("got %v, want overloaded", err)
	}
	for _, s := range says {
		if !strings.Contains(e.Reason, s) {
			t.Errorf("the refusal %q does not say %q", e.Reason, s)
		}
	}
}

// checkCursors fails the test unless what is counted is what there is.
func checkCursors(t *testing.T, cs *cursors) {
	t.Helper()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var bytes int64
	count, sums, idle := map[string]int{}, map[string]int64{}, map[string]int{}
	for id, c := range cs.mu.open {
		name := c.owner.name
		count[name]++
		sums[name] += c.bytes
		if c.idle != nil {
			idle[name]++
		}
		if c.id != id || cs.mu.owners[name] != c.owner {
			t.Errorf("cursor %d is lost", id)
		}
	}
	for name, o := range cs.mu.owners {
		for f, n := range o.filters {
			if n <= 0 {
				t.Errorf("a filter of %q has %d scans", name, n)
			}
			sums[name] += f.Bytes()
		}
		bytes += sums[name]
	}
	if bytes != cs.mu.bytes || len(count) != len(cs.mu.owners) || cs.bytesMax > 0 && bytes > cs.bytesMax {
		t.Errorf("%d bytes of %d users, counted as %d and %d", bytes, len(count), cs.mu.bytes, len(cs.mu.owners))
	}
	for name, o := range cs.mu.owners {
		if o.count != count[name] || o.bytes != sums[name] || o.idle.Len() != idle[name] {
			t.Errorf("%q has %d, %d bytes, %d idle; counted as %d, %d, %d", name, count[name], sums[name], idle[name], o.count, o.bytes, o.idle.Len())
		}
	}
}

// TestCursorsOfOneUser: a user has a quarter of the cursors, and the others are
// not affected.
func TestCursorsOfOneUser(t *testing.T) {
	var cs cursors
	var last *cursor
	for range api.CursorsOfUserMax {
		last = cs.idle(t, scanOf("ann", 0))
	}
	_, err := cs.begin(scanOf("ann", 0))
	wantOverloaded(t, err, "user ann", "2500 of 2500 cursors", "close scans")
	cs.idle(t, scanOf("bob", 0))
	if c := cs.take(last.id, "bob"); c != nil {
		t.Error("bob has taken a cursor of ann")
	}
	cs.drop(cs.take(last.id, "ann"))
	if c := cs.take(last.id, "ann"); c != nil {
		t.Error("a cursor is there after it was dropped")
	}
	cs.idle(t, scanOf("ann", 0))
	if st := cs.stats(); st.refused != 1 || st.evicted != 0 || st.users != 2 || st.mostOfUser != api.CursorsOfUserMax || st.open != api.CursorsOfUserMax+1 {
		t.Errorf("%+v", st)
	}
	checkCursors(t, &cs)
}

// TestCursorsWithoutNames: clients of a cluster without access control have all
// cursors together, and all memory.
func TestCursorsWithoutNames(t *testing.T) {
	cs := cursors{bytesMax: 1 << 30}
	for range api.CursorsMax {
		cs.idle(t, scanOf("", 0))
	}
	_, err := cs.begin(scanOf("", 0))
	wantOverloaded(t, err, "10000 of 10000 cursors")
	cs = cursors{bytesMax: 1 << 20}
	for range 16 {
		cs.idle(t, scanOf("", 60<<10))
	}
	_, err = cs.begin(scanOf("", 60<<10))
	wantOverloaded(t, err, "of 1048576 bytes", "--memory")
	checkCursors(t, &cs)
}

// TestCursorMemory charges keys, filters and names of tables, and refuses a user
// that holds a quarter of the memory.
func TestCursorMemory(t *testing.T) {
	cs := cursors{bytesMax: 1 << 20}
	for range 4 {
		cs.idle(t, scanOf("ann", 60<<10))
	}
	_, err := cs.begin(scanOf("ann", 60<<10))
	wantOverloaded(t, err, "user ann", "of 262144 bytes", "close scans", "--memory")
	cs.idle(t, scanOf("bob", 60<<10))
	checkCursors(t, &cs)

	f, err := table.CompileLimits(table.ValueRegex("(a|b)*x{20}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	start := make([]byte, 100)
	s := &scan{table: "web", filter: f, rg: tablet.Range{Start: start, End: make([]byte, 200)}, resume: start}
	if got, want := s.bytes(), int64(cursorOverhead+3+100+200); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if s.resume = make([]byte, 50); s.bytes() != cursorOverhead+3+100+200+50 {
		t.Errorf("%d bytes with another key", s.bytes())
	}
	if got := (&scan{}).bytes(); got != cursorOverhead {
		t.Errorf("%d bytes of nothing", got)
	}
}

// TestCursorFilters: a filter is charged once to a user whose scans share it, as long as one of them is open.
func TestCursorFilters(t *testing.T) {
	cs := cursors{bytesMax: 1 << 20}
	compile := func() *table.Program {
		f, err := table.CompileLimits(table.ValueRegex("(a|b)*x{900}"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := compile()
	if f.Bytes() < 150<<10 || f.Bytes() > 250<<10 {
		t.Fatalf("a filter of %d bytes", f.Bytes())
	}
	open := func(owner string, f *table.Program) (*cursor, error) {
		s := scanOf(owner, 0)
		c, err := cs.begin(s)
		if err != nil {
			t.Fatal(err)
		}
		s.filter = f
		if err := cs.weigh(c); err != nil {
			cs.drop(c)
			return nil, err
		}
		return c, nil
	}
	var all []*cursor
	for range 20 {
		c, err := open("ann", f)
		if err == nil {
			err = cs.weigh(c) // after a batch
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if st := cs.stats(); st.bytes != 20*cursorOverhead+f.Bytes() {
		t.Errorf("20 scans and a filter of %d bytes take %d", f.Bytes(), st.bytes)
	}
	_, err := open("ann", compile())
	wantOverloaded(t, err, "user ann")
	if _, err := open("bob", f); err != nil {
		t.Errorf("another user with the same filter: %v", err)
	}
	checkCursors(t, &cs)
	for _, c := range all {
		cs.drop(c)
	}
	checkCursors(t, &cs)
	if _, err := open("ann", compile()); err != nil {
		t.Errorf("another filter in the place of the first: %v", err)
	}
	checkCursors(t, &cs)
}

// TestCursorsGiveWay: when all users together have all there is, the one with the
// most loses the cursor that was not used for longest, to one with less.
func TestCursorsGiveWay(t *testing.T) {
	cs := cursors{bytesMax: 1 << 20}
	size := 16<<10 - cursorOverhead
	var ann []*cursor
	for user, n := range map[string]int{"ann": 16, "bob": 15, "cid": 15, "dan": 14} {
		for range n {
			c := cs.idle(t, scanOf(user, size))
			if user == "ann" {
				ann = append(ann, c)
			}
		}
	}
	for range 4 {
		cs.idle(t, scanOf("eve", size))
	}
	used := cs.take(ann[0].id, "ann")
	cs.put(used) // not the oldest any more
	busy := cs.take(ann[1].id, "ann")
	cs.idle(t, scanOf("eve", size))
	if c := cs.take(ann[2].id, "ann"); c != nil {
		t.Error("the longest unused cursor of the user with the most is there still")
	}
	for i, c := range []*cursor{ann[0], ann[3]} {
		got := cs.take(c.id, "ann")
		if got == nil {
			t.Fatalf("cursor %d of ann is gone", i)
		}
		cs.put(got)
	}
	cs.put(busy)
	if st := cs.stats(); st.evicted != 1 || st.bytes != 1<<20 {
		t.Errorf("%+v", st)
	}
	// The user with the most gets nothing from the others.
	cs.idle(t, scanOf("eve", size)) // from any of those that have 15
	_, err := cs.begin(scanOf("ann", 2*size))
	wantOverloaded(t, err)
	// A node comes before users.
	node := cs.idle(t, scanOf("", 100<<10))
	if cs.take(node.id, "") == nil {
		t.Error("the node's cursor is gone")
	}
	checkCursors(t, &cs)
}

// TestCursorsGrow: a scan that has come to long keys takes the place of idle ones
// of its own user, and fails if there is none.
func TestCursorsGrow(t *testing.T) {
	cs := cursors{bytesMax: 1 << 20}
	old := cs.idle(t, scanOf("ann", 100<<10))
	cs.idle(t, scanOf("ann", 100<<10))
	s := scanOf("ann", 0)
	c, err := cs.begin(s)
	if err != nil {
		t.Fatal(err)
	}
	s.rg.Start = make([]byte, 60<<10)
	if err := cs.weigh(c); err != nil {
		t.Fatal(err)
	}
	if cs.take(old.id, "ann") != nil {
		t.Error("the idle cursor is there still")
	}
	checkCursors(t, &cs)
	s.rg.Start = make([]byte, 300<<10)
	wantOverloaded(t, cs.weigh(c), "user ann")
	checkCursors(t, &cs)
	cs.put(c)
	s.rg.Start = nil
	if err := cs.weigh(cs.take(c.id, "ann")); err != nil || cs.stats().bytes != cursorOverhead {
		t.Errorf("%v, %+v", err, cs.stats())
	}
}

// TestCursorsCount compares the counts with what there is after random calls.
func TestCursorsCount(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	cs := cursors{bytesMax: 1 << 20}
	owners := []string{"", "ann", "bob", "cid"}
	var filters []*table.Program
	for range 3 {
		f, err := table.Compile(table.ValueRegex("(a|b)*x{20}"))
		if err != nil {
			t.Fatal(err)
		}
		filters = append(filters, f)
	}
	var busy, idle []*cursor
	for range 5000 {
		owner := owners[rng.IntN(4)]
		switch rng.IntN(5) {
		case 0, 1:
			if c, err := cs.begin(scanOf(owner, rng.IntN(30_000))); err == nil {
				busy = append(busy, c)
			}
		case 2:
			if len(busy) > 0 {
				c := busy[len(busy)-1]
				busy = busy[:len(busy)-1]
				c.scan.rg.Start = make([]byte, rng.IntN(60_000))
				if c.scan.filter == nil && rng.IntN(2) == 0 {
					c.scan.filter = filters[rng.IntN(3)]
				}
				if cs.weigh(c) != nil {
					cs.drop(c)
					break
				}
				cs.put(c)
				idle = append(idle, c)
			}
		case 3:
			if len(idle) > 0 {
				i := rng.IntN(len(idle))
				c := idle[i]
				idle = append(idle[:i], idle[i+1:]...)
				if cs.take(c.id, c.owner.name) != nil {
					busy = append(busy, c)
				}
			}
		case 4:
			if len(busy) > 20 {
				cs.drop(busy[0])
				busy = busy[1:]
			}
		}
	}
	checkCursors(t, &cs)
	if st := cs.stats(); st.evicted == 0 || st.refused == 0 {
		t.Errorf("nothing was refused or evicted: %+v", st)
	}
}
