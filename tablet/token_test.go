package tablet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sortedrun"
)

// sendOnce sends a mutation of a row with a token, and a start time unless that is 0.
func sendOnce(s *Server, row, id string, start int64, ms ...table.Mutation) (int64, error) {
	type outcome struct {
		ts  int64
		err error
	}
	done := make(chan outcome, 1)
	rm := &table.RowMutation{Row: []byte(row), Mutations: ms, Token: &table.Token{ID: []byte(id), Start: start}}
	s.Apply(testTable, rm, func(ts int64, err error) { done <- outcome{ts, err} })
	o := <-done
	return o.ts, o.err
}

// addOnce adds to the counter of a row.
func addOnce(t testing.TB, s *Server, row, id string, n int64) {
	t.Helper()
	if ts, err := sendOnce(s, row, id, 0, table.Add("sum", []byte("q"), 7, n)); err != nil || ts != 0 {
		t.Fatalf("timestamp %d, %v", ts, err)
	}
}

// counter is the result of reading a row of addOnce.
func counter(n int64) []string {
	return cellStrings([]table.Cell{{Family: "sum", Qualifier: []byte("q"), Timestamp: 7, Value: table.Integer(n)}})
}

// TestTokenCountsOnce (T18): a mutation with a token that is sent again after compactions, splits, merges, crashes and restarts is made once, and reads show no token.
func TestTokenCountsOnce(t *testing.T) {
	ctx := t.Context()
	e := newAggregateEnv(t, "sum:aggregate=sum", "f:", streamed)
	split := func() {
		if _, _, err := e.Split(ctx, lastTablet, []byte("m")); err != nil {
			t.Fatal(err)
		}
	}
	want := int64(0)
	for i, step := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"minor", func() { e.pass(1) }},
		{"merge", func() { e.pass(2) }},
		{"major", func() { e.pass(3) }},
		{"split", split},
		{"crash", func() { e.crash(); e.open() }},
		{"merge of tablets", func() {
			if err := e.Merge(ctx, refTo([]byte("m")), lastTablet); err != nil {
				t.Fatal(err)
			}
		}},
		{"restart", func() { e.close(); e.open() }},
		{"row deletion", func() { e.mustApply("a", table.DeleteRow()); e.mustApply("z", table.DeleteRow()); want = 0 }},
		{"row deletion and major", func() { e.mustApply("a", table.DeleteRow()); e.mustApply("z", table.DeleteRow()); want = 0; e.pass(3) }},
	} {
		for _, row := range []string{"a", "z"} {
			addOnce(t, e.Server, row, fmt.Sprintf("token %4d", i), 5)
		}
		want += 5
		step.do()
		for _, row := range []string{"a", "z"} {
			for old := range i + 1 {
				addOnce(t, e.Server, row, fmt.Sprintf("token %4d", old), 5)
			}
			expected := counter(want)
			if want == 0 {
				expected = nil
			}
			if got := e.read(row, nil); !slices.Equal(got, expected) {
				t.Fatalf("after %s, row %s: got %q, want %q", step.name, row, got, expected)
			}
		}
	}
	if rows := scanned(t, e.Server, false); len(rows) != 0 {
		t.Errorf("rows %q have tokens only, and are there", rows)
	}
	p, err := e.For(nil).ReadChanges(ctx, testTable, ChangesRequest{Next: 1, Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Changes {
		if len(c.Mutations) != 1 || c.Mutations[0].Op != table.OpMerge && c.Mutations[0].Op != table.OpDeleteRow {
			t.Errorf("change %+v", c)
		}
	}
	if len(p.Changes) == 0 {
		t.Error("no changes")
	}
}

// TestTokenMoves (T18): the same after the tablet moved, and after its server was killed and its log recovered elsewhere.
func TestTokenMoves(t *testing.T) {
	f := newCluster(t, Config{}, 2, "sum:aggregate=sum")
	check := func(what string, want int64) {
		t.Helper()
		addOnce(t, f.serverOf("r").Server, "r", "token of move", 5)
		addOnce(t, f.serverOf("r").Server, "r", "token of kill", 6)
		if got := f.read("r"); !slices.Equal(got, counter(want)) {
			t.Fatalf("after %s: got %q, want %q", what, got, counter(want))
		}
	}
	addOnce(t, f.servers[0].Server, "r", "token of move", 5)
	if err := f.move(f.servers[0], f.servers[1], nil); err != nil {
		t.Fatal(err)
	}
	check("move", 11)
	var runs []sortedrun.Run = f.kill(f.serverOf("r"))
	if err := f.load(f.servers[0], nil, runs); err != nil {
		t.Fatal(err)
	}
	check("kill", 11)
}

// TestTokenConcurrent (T18): of concurrent sends of one token, one is made.
func TestTokenConcurrent(t *testing.T) {
	e := newEnv(t, Config{}, "sum:aggregate=sum")
	for round := range 50 {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { addOnce(t, e.Server, "r", fmt.Sprintf("token %d", 1000+round), 1) })
		}
		wg.Wait()
	}
	if got := e.read("r", nil); !slices.Equal(got, counter(50)) {
		t.Errorf("got %q, want %q", got, counter(50))
	}
}

// TestTokenTimestamp: the answer to a mutation that was made before has the timestamp of its cells.
func TestTokenTimestamp(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	set := table.Set("f", []byte("q"), table.ServerTimestamp, []byte("v"))
	first, err := sendOnce(e.Server, "r", "12345678", 0, set)
	if err != nil {
		t.Fatal(err)
	}
	e.clock.micros.Add(1000)
	again, err := sendOnce(e.Server, "r", "12345678", 0, set)
	if err != nil || again != first || first == 0 {
		t.Errorf("timestamp %d, then %d, %v", first, again, err)
	}
	if got := e.read("r", nil); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

// TestTokenExpires: a mutation is rejected after its window, and a token without a start time is forgotten and leaves the files.
func TestTokenExpires(t *testing.T) {
	e := newAggregateEnv(t, "sum:aggregate=sum")
	start, op := e.clock.micros.Load(), table.Add("sum", []byte("q"), 7, 1)
	send := func(id string, start int64, want error) {
		t.Helper()
		if _, err := sendOnce(e.Server, "r", id, start, op); !errors.Is(err, want) {
			t.Errorf("%s at %v: %v, want %v", id, time.Duration(e.clock.micros.Load()-start)*time.Microsecond, err, want)
		}
	}
	send("with start", start, nil)
	send("no start", 0, nil)
	send("too early", start+table.TokenAhead.Microseconds()+1, table.ErrBadToken)
	send("ahead----", start+table.TokenAhead.Microseconds(), nil)
	e.clock.micros.Store(start + table.TokenWindow.Microseconds())
	send("with start", start, nil)
	e.clock.micros.Add(1)
	send("with start", start, table.ErrBadToken)
	e.clock.micros.Store(start + (table.TokenWindow + table.TokenAhead).Microseconds())
	e.pass(3)
	send("ahead----", start+table.TokenAhead.Microseconds(), nil)
	send("no start", 0, nil)
	if got := e.read("r", nil); !slices.Equal(got, counter(3)) {
		t.Errorf("got %q, want %q", got, counter(3))
	}
	e.clock.micros.Add(2 * time.Minute.Microseconds())
	e.pass(3)
	if u := e.Usage(1)[0]; len(u.Families) != 1 {
		t.Errorf("families %+v after tokens expired", u.Families)
	}
	send("no start", 0, nil)
	if got := e.read("r", nil); !slices.Equal(got, counter(4)) {
		t.Errorf("got %q, want %q", got, counter(4))
	}
}

// TestTokenClockStep: a clock that steps back makes no token expire.
func TestTokenClockStep(t *testing.T) {
	e := newAggregateEnv(t, "sum:aggregate=sum")
	addOnce(t, e.Server, "r", "12345678", 5)
	e.clock.micros.Add(-time.Hour.Microseconds())
	addOnce(t, e.Server, "r", "12345678", 5)
	addOnce(t, e.Server, "r", "87654321", 1)
	e.pass(3)
	addOnce(t, e.Server, "r", "87654321", 1)
	if got := e.read("r", nil); !slices.Equal(got, counter(6)) {
		t.Errorf("got %q, want %q", got, counter(6))
	}
}

// TestTokensCleared: clearing rows takes their tokens as well, whatever was compacted.
func TestTokensCleared(t *testing.T) {
	for gap := range gaps {
		e := newAggregateEnv(t, "sum:aggregate=sum")
		addOnce(t, e.Server, "r", "12345678", 5)
		if err := clearRows(t.Context(), e.Server, nil, nil); err != nil {
			t.Fatal(err)
		}
		e.pass(gap)
		addOnce(t, e.Server, "r", "12345678", 5)
		if got := e.read("r", nil); !slices.Equal(got, counter(5)) {
			t.Errorf("after %s: got %q, want %q", gaps[gap], got, counter(5))
		}
	}
}

// TestHostileTokens: bad tokens change nothing, and many tokens of a row neither slow its reads down nor fill memory.
func TestHostileTokens(t *testing.T) {
	e := newEnv(t, Config{MemtableBytes: 1 << 20, MemtablesBytesMax: 8 << 20}, "sum:aggregate=sum", "f:versions=1")
	for id, want := range map[string]error{
		"": table.ErrBadToken, "1234567": table.ErrBadToken, "12345678": nil, strings.Repeat("x", table.TokenBytesMax): nil,
		strings.Repeat("x", table.TokenBytesMax+1): table.ErrLimit, strings.Repeat("x", 1<<20): table.ErrLimit,
	} {
		if _, err := sendOnce(e.Server, "r", id, 0, table.Add("sum", []byte("q"), 7, 1)); !errors.Is(err, want) {
			t.Errorf("token of %d bytes: %v, want %v", len(id), err, want)
		}
	}
	if _, err := sendOnce(e.Server, "r", "negative", -1, table.Add("sum", []byte("q"), 7, 1)); !errors.Is(err, table.ErrBadToken) {
		t.Errorf("negative start: %v", err)
	}
	if _, err := sendOnce(e.Server, "r", "no mutation", 0); !errors.Is(err, table.ErrNoMutations) {
		t.Errorf("no mutations: %v", err)
	}
	if _, err := sendOnce(e.Server, "r", "bad family", 0, table.Add("~token", []byte("q"), 7, 1)); !errors.Is(err, table.ErrNoFamily) {
		t.Errorf("family of tokens: %v", err)
	}
	n := int64(30_000)
	if testing.Short() {
		n = 3000
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		rm := &table.RowMutation{Row: []byte("s"), Mutations: []table.Mutation{table.Set("f", []byte("q"), table.ServerTimestamp, nil)}, Token: &table.Token{ID: fmt.Appendf(nil, "token %9d", i)}}
		e.Apply(testTable, rm, func(_ int64, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		})
	}
	wg.Wait()
	if got := e.read("r", nil); !slices.Equal(got, counter(2)) {
		t.Errorf("got %q, want %q", got, counter(2))
	}
	if s := e.Stats(); s.MemtableBytes > 8<<20 {
		t.Errorf("%d bytes of memtables", s.MemtableBytes)
	}
	r := readerPool.Get().(*reader)
	defer r.release()
	r.begin(e.For(nil))
	tab, err := e.For(nil).tabletNow(testTable, []byte("s"))
	if err == nil {
		err = r.readRow(t.Context(), tab, []byte("s"), nil, func([]byte, []table.Cell) error { return nil })
	}
	if err != nil || r.rows.read > 4*seekEntries*8 {
		t.Errorf("a read of the row takes %d steps, %v", r.rows.read, err)
	}
}
