package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/table/hll"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sortedrun"
)

// aggregateEnv is an env whose compactions are those that the test asks for.
type aggregateEnv struct {
	*env
	// merge makes the next compaction merge the newest two files of a group.
	merge atomic.Bool
}

func newAggregateEnv(t testing.TB, specs ...string) *aggregateEnv {
	e := &aggregateEnv{}
	cfg := Config{MajorPeriod: 1000 * time.Hour, CompactionBytesPerSecond: -1}
	cfg.pick = func(sizes []int64, _ int) (from, to int) {
		if n := len(sizes); n >= 2 && e.merge.CompareAndSwap(true, false) {
			return n - 2, n
		}
		return 0, 0
	}
	e.env = newEnv(t, cfg, specs...)
	return e
}

// gaps are what may happen between two mutations.
var gaps = []string{"nothing", "minor", "merge", "major"}

// pass lets happen what gaps names at an index.
func (e *aggregateEnv) pass(gap int) {
	e.t.Helper()
	if gap == 0 {
		return
	}
	e.merge.Store(gaps[gap] == "merge")
	if err := e.Compact(e.t.Context(), testTable, gaps[gap] == "major"); err != nil {
		e.t.Fatal(err)
	}
}

// scheduled is a row with operands and a deletion among them.
type scheduled struct {
	row    string
	events [][]table.Mutation
}

// schedules returns the rows of TestAggregateSchedules: each kind of deletion at each place among the operands, and none.
func schedules(families []string) (rows []scheduled) {
	operands := func(i int) (ms []table.Mutation) {
		n := []int64{5, -3, 11, 2}[i]
		for _, f := range families {
			ms = append(ms, table.Add(f, []byte("q"), 1000, n), table.Add(f, []byte("r"), int64(1000+1000*(i%2)), n), table.Add(f, []byte("r"), 3000, n))
		}
		return ms
	}
	each := func(of func(family string, qualifier []byte) table.Mutation) (ms []table.Mutation) {
		for _, f := range families {
			ms = append(ms, of(f, []byte("q")), of(f, []byte("r")))
		}
		return ms
	}
	deletions := map[string][]table.Mutation{
		"column": each(table.DeleteColumn),
		"range": each(func(f string, q []byte) table.Mutation {
			return table.DeleteColumnRange(f, q, 1000, table.Before(1001))
		}),
		"newest": each(func(f string, q []byte) table.Mutation {
			return table.DeleteColumnRange(f, q, 2000, table.Before(9000))
		}),
		"family": each(func(f string, _ []byte) table.Mutation { return table.DeleteFamily(f) }),
		"row":    {table.DeleteRow()},
		"none":   nil,
	}
	for kind, deletion := range deletions {
		for at := 0; at <= 4; at++ {
			s := scheduled{row: fmt.Sprintf("%s at %d", kind, at)}
			for i := range 4 {
				if i == at {
					s.events = append(s.events, deletion)
				}
				s.events = append(s.events, operands(i))
			}
			if at == 4 {
				s.events = append(s.events, deletion)
			}
			rows = append(rows, s)
		}
	}
	return rows
}

// TestAggregateSchedules (T14, T17): four operands with a deletion at each place among them, and between each two of these nothing, a
// minor, a merging or a major compaction, have the value of the model at each moment.
func TestAggregateSchedules(t *testing.T) {
	families := []string{"hll", "max", "min", "one", "sum", "two"}
	rows := schedules(families)
	for schedule := range 1 << (2 * 4) {
		e := newAggregateEnv(t, "sum:aggregate=sum", "min:aggregate=min", "max:aggregate=max", "one:aggregate=sum,versions=1", "hll:aggregate=hll", "two:aggregate=sum,versions=2")
		m := newModel(map[string]rule{"one": {versions: 1}, "two": {versions: 2}})
		check := func(event, gap int) {
			t.Helper()
			for _, s := range rows {
				if got, want := e.read(s.row, nil), cellStrings(m.read(s.row, 0)); !slices.Equal(got, want) {
					t.Fatalf("schedule %d, %s, after event %d and %s:\ngot  %q\nwant %q", schedule, s.row, event, gaps[gap], got, want)
				}
			}
		}
		for event := range 5 {
			for _, s := range rows {
				if ms := s.events[event]; len(ms) > 0 {
					m.apply(s.row, e.mustApply(s.row, ms...), ms)
				}
			}
			if event == 4 {
				break
			}
			if gap := schedule >> (2 * event) & 3; gap > 0 { // else checked after the next
				e.pass(gap)
				check(event, gap)
			}
		}
		for gap := range gaps { // nothing, then each kind
			e.pass(gap)
			check(4, gap)
		}
		e.close()
	}
}

// TestAggregateRecovery (T15): however operands are divided between files and the log when the power fails, each is folded once.
func TestAggregateRecovery(t *testing.T) {
	for schedule := range 1 << (2 * 4) {
		e := newAggregateEnv(t, "f:aggregate=sum")
		sum := int64(0)
		for i := range 4 {
			sum += int64(1) << i
			e.mustApply("row", table.Add("f", []byte("q"), 7, 1<<i))
			switch at := schedule >> (2 * i) & 3; at {
			case 1:
				e.pass(1)
			case 2:
				e.crash()
				e.open()
			case 3:
				e.pass(1)
				e.crash()
				e.open()
			}
			if got, want := fmt.Sprint(e.read("row", nil)), "[f:q@7="+string(table.Integer(sum))+"]"; got != want {
				t.Fatalf("schedule %d, after operand %d: got %q, want %q", schedule, i, got, want)
			}
		}
		e.close()
	}
}

// TestAggregateReassigned (T15): a server that loads the tablet of a dead one from its files and the sorted runs of its log folds each
// operand once, also if a piece of the log was sorted twice, wherever a memtable is full.
func TestAggregateReassigned(t *testing.T) {
	cfg := Config{CompactionBytesPerSecond: -1, MemtableBytes: 4 << 10}
	for _, column := range []string{"q", strings.Repeat("q", 4<<10)} { // a long one fills a memtable
		aggregateReassigned(t, cfg, column)
	}
}

func aggregateReassigned(t *testing.T, cfg Config, column string) {
	for schedule := range 3 * 3 * 3 * 3 {
		c := newCluster(t, cfg, 1, "f:aggregate=sum")
		s, sum := c.servers[0], int64(0)
		var runs []sortedrun.Run // of all dead servers: recovered entries may not be in files yet
		for i, left := 0, schedule; i < 4; i, left = i+1, left/3 {
			sum += int64(1) << i
			if _, err := applySync(s.Server, "row", table.Add("f", []byte(column), 7, 1<<i)); err != nil {
				t.Fatal(err)
			}
			switch left % 3 {
			case 1:
				if err := s.Compact(t.Context(), testTable, false); err != nil {
					t.Fatal(err)
				}
			case 2:
				runs = append(runs, c.kill(s)...)
				s = c.start()
				c.servers = append(c.servers, s)
				if err := c.load(s, nil, slices.Concat(runs, runs)); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := fmt.Sprint(c.read("row")), "[f:"+column+"@7="+string(table.Integer(sum))+"]"; got != want {
				t.Fatalf("schedule %d, column of %d bytes, after operand %d: got %q, want %q", schedule, len(column), i, got, want)
			}
		}
	}
}

// TestAggregateSplitAndMerge (T14, T15): a split and a merge of tablets fold no operand twice, in memtables and in files.
func TestAggregateSplitAndMerge(t *testing.T) {
	e := newAggregateEnv(t, "f:aggregate=sum")
	want := map[string]int64{"a": 0, "b": 0, "c": 0, "d": 0}
	add := func() {
		t.Helper()
		for row := range want {
			want[row] += 3
			e.mustApply(row, table.Add("f", nil, 0, 3))
		}
	}
	check := func(when string) {
		t.Helper()
		for row, n := range want {
			if got, want := fmt.Sprint(e.read(row, nil)), "[f:@0="+string(table.Integer(n))+"]"; got != want {
				t.Errorf("%s: row %s is %q, want %q", when, row, got, want)
			}
		}
	}
	add()
	e.pass(1)
	add()
	if _, _, err := e.Split(t.Context(), lastTablet, []byte("b")); err != nil {
		t.Fatal(err)
	}
	check("after the split")
	add()
	e.pass(1)
	check("after the minor compaction")
	if err := e.Merge(t.Context(), Ref{Table: 1, End: "b"}, lastTablet); err != nil {
		t.Fatal(err)
	}
	add()
	check("after the merge")
	e.pass(3)
	check("after the major compaction")
	e.crash()
	e.open()
	check("after the crash")
}

// TestAggregateRefusals (T16): cells of an aggregate family are not set, and operands not added to a plain one.
func TestAggregateRefusals(t *testing.T) {
	e := newAggregateEnv(t, "plain:", "agg:aggregate=max")
	for _, m := range []table.Mutation{set("agg", "q", 1, "12345678"), table.Add("plain", nil, 0, 1), table.Merge("plain", nil, 0, table.Integer(1))} {
		_, err := e.apply("row", m)
		_, checked := e.CheckAndMutate(t.Context(), testTable, []byte("row"), nil, nil, []table.Mutation{m})
		for _, err := range []error{err, checked} {
			var typed *table.AggregateError
			if !errors.As(err, &typed) || !errors.Is(err, table.ErrAggregate) || typed.Family != m.Family || !errors.Is(api.FromRPC(api.ToRPC(err)), table.ErrAggregate) {
				t.Errorf("%v in %s: %v", m.Op, m.Family, err)
			}
		}
	}
	for _, r := range []table.Rule{{Op: table.RuleIncrement, Family: "agg", Amount: 1}, {Op: table.RuleAppend, Family: "agg", Value: []byte("x")}} {
		if _, err := e.ReadModifyWrite(t.Context(), testTable, []byte("row"), []table.Rule{r}); !errors.Is(err, table.ErrAggregate) {
			t.Errorf("rule %d: %v", r.Op, err)
		}
	}
	if _, err := e.apply("row", table.Merge("agg", nil, 0, []byte("short"))); !errors.Is(err, table.ErrBadOperand) {
		t.Errorf("operand of 5 bytes: %v", err)
	}
	if _, err := e.apply("row", table.Add("agg", nil, table.ServerTimestamp, 1)); !errors.Is(err, table.ErrBadTimestamp) {
		t.Errorf("operand without a timestamp: %v", err)
	}
	if got := e.read("row", nil); len(got) > 0 {
		t.Errorf("a refused mutation left %q", got)
	}
}

// TestAggregateFilters: filters and conditional mutations see folded values, whether the operands are in memtables or files.
func TestAggregateFilters(t *testing.T) {
	e := newAggregateEnv(t, "f:aggregate=sum")
	values := func(from, to int64) table.Filter {
		return table.ValueRange{Start: table.Closed(table.Integer(from)), End: table.Closed(table.Integer(to))}
	}
	for gap := range gaps {
		row := gaps[gap]
		for i := range 3 {
			e.mustApply(row, table.Add("f", []byte("q"), 1000, 10), table.Add("f", []byte("q"), 2000, 1), table.Add("f", []byte("q"), 3000, int64(i)))
			e.pass(gap)
		}
		cell := func(ts, n int64) string { return fmt.Sprintf("f:q@%d=%s", ts, table.Integer(n)) }
		for _, tc := range []struct {
			f    table.Filter
			want []string
		}{
			{values(30, 30), []string{cell(1000, 30)}},
			{values(4, 29), nil},
			{values(3, 3), []string{cell(3000, 3), cell(2000, 3)}},
			{table.CellsPerColumnLimit(1), []string{cell(3000, 3)}},
			{table.CellsPerRowLimit(2), []string{cell(3000, 3), cell(2000, 3)}},
			{table.TimestampRange{Start: 1000, End: table.Before(2001)}, []string{cell(2000, 3), cell(1000, 30)}},
			{table.TimestampRange{Start: 2000, End: table.Before(3000)}, []string{cell(2000, 3)}},
		} {
			if got := e.read(row, tc.f); !slices.Equal(got, tc.want) {
				t.Errorf("%s, %v: got %q, want %q", row, tc.f, got, tc.want)
			}
		}
		p, err := table.Compile(values(30, 30))
		if err != nil {
			t.Fatal(err)
		}
		if matched, err := e.CheckAndMutate(t.Context(), testTable, []byte(row), p, []table.Mutation{table.Add("f", []byte("q"), 1000, 1)}, nil); !matched || err != nil {
			t.Errorf("%s: matched %v, error %v", row, matched, err)
		}
		if got := e.read(row, values(31, 31)); len(got) != 1 {
			t.Errorf("%s: after a conditional add: %q", row, got)
		}
	}
}

// TestSketches (T14): many integers and sketches, of which the fold becomes normal, are folded the same in memtables, in files, and after each compaction,
// also after a crash. What is merged is stored and read as Fold has it.
func TestSketches(t *testing.T) {
	e := newAggregateEnv(t, "f:aggregate=hll")
	var want hll.Sketch
	check := func(when string) {
		t.Helper()
		if got, want := e.read("row", nil), cellStrings([]table.Cell{{Family: "f", Qualifier: []byte("q"), Value: want.Append(nil)}}); !slices.Equal(got, want) {
			t.Fatalf("%s: got %q, want %q", when, got, want)
		}
	}
	add := func(n, count int64) {
		t.Helper()
		var ms []table.Mutation
		for i := range count {
			want.Add(n + i)
			ms = append(ms, table.Add("f", []byte("q"), 0, n+i))
		}
		e.mustApply("row", ms...)
	}
	add(1, 1)
	check("one integer")
	add(0, 100)
	check("in the memtable")
	for gap := range gaps {
		for i := range int64(4) {
			add(int64(gap)*10000+i*1500, 2000)
			e.pass(gap)
		}
		check("integers and " + gaps[gap])
	}
	if len(want.Append(nil)) < 1<<15 {
		t.Errorf("the fold is still sparse: %d bytes", len(want.Append(nil)))
	}
	other := bytes.Replace(want.Append(nil), []byte{0x18, 2, 0x20, 8}, []byte{0x18, 2, 0x78, 1, 0x20, 4}, 1) // an unknown field, type int64
	e.mustApply("other", table.Merge("f", nil, 0, other))
	if got, want := e.read("other", nil), cellStrings([]table.Cell{{Family: "f", Value: want.Append(nil)}}); !slices.Equal(got, want) {
		t.Errorf("merged: got %q, want %q", got, want)
	}
	for _, m := range []table.Mutation{table.Merge("f", nil, 0, table.Integer(1)), table.Merge("f", nil, 0, nil), table.Merge("f", nil, 0, other[:len(other)-1])} {
		if _, err := e.apply("row", m); !errors.Is(err, table.ErrBadOperand) || !errors.Is(api.FromRPC(api.ToRPC(err)), table.ErrBadOperand) {
			t.Errorf("merge of %.20x: %v", m.Value, err)
		}
	}
	e.crash()
	e.open()
	check("after a crash")
}

// TestSketchMemory: a row's limit holds for the folds of its cells, which may be larger than each operand.
func TestSketchMemory(t *testing.T) {
	e := newEnv(t, Config{RowReadBytesMax: 60 << 10}, "f:aggregate=hll")
	for i := range int64(2) {
		var s hll.Sketch
		for n := range int64(15000) {
			s.Add(i*20000 + n)
		}
		for _, row := range []string{"one", "two"} {
			e.mustApply(row, table.Merge("f", []byte("q"), 0, s.Append(nil)))
		}
		e.mustApply("two", table.Merge("f", []byte("r"), 0, s.Append(nil)))
	}
	if got := e.read("one", nil); len(got) != 1 {
		t.Errorf("%d cells of 32 KiB", len(got))
	}
	err := e.ReadRow(t.Context(), testTable, []byte("two"), nil, func([]byte, []table.Cell) error { return nil })
	if !errors.Is(err, table.ErrLimit) {
		t.Errorf("two cells of 32 KiB: %v", err)
	}
}

// TestAggregateHistory: a deletion of some timestamps ends the operands before it, also in a column whose policy counts versions and is
// judged as a whole, of few and of many entries.
func TestAggregateHistory(t *testing.T) {
	for _, columns := range []int{1, holdBytes / 100} {
		e := newAggregateEnv(t, "f:aggregate=sum,versions=100000", "hll:aggregate=hll,versions=100000")
		m := newModel(map[string]rule{"f": {versions: 100000}, "hll": {versions: 100000}})
		for round := range 3 {
			var ms []table.Mutation
			for i := range columns {
				ms = append(ms, table.Add("f", []byte("q"), int64(i), int64(i+round)), table.Add("hll", nil, int64(i/100), int64(i+round)))
			}
			if round == 1 {
				ms = append(ms, table.DeleteColumnRange("f", []byte("q"), 0, table.Before(int64(columns/2+1))), table.Add("f", []byte("q"), 0, 8))
				ms = append(ms, table.DeleteColumnRange("hll", nil, 0, table.Before(1)), table.Add("hll", nil, 0, 8))
			}
			m.apply("row", e.mustApply("row", ms...), ms)
			e.pass(1)
		}
		check := func(when string) {
			t.Helper()
			if got, want := e.read("row", nil), cellStrings(m.read("row", 0)); !slices.Equal(got, want) {
				t.Errorf("%d columns, %s: %d cells, want %d", columns, when, len(got), len(want))
			}
		}
		check("before the compaction")
		e.pass(3)
		check("after the compaction")
	}
}

// TestAggregateUnknown: entries that do not fit the family's aggregate are never taken for cells, neither by a read nor by a compaction.
func TestAggregateUnknown(t *testing.T) {
	for _, specs := range [][2]string{{"f:aggregate=sum", "f:"}, {"f:", "f:aggregate=sum"}} {
		e := newAggregateEnv(t, specs[0])
		m := table.Set("f", nil, 1, table.Integer(1))
		if strings.Contains(specs[0], "sum") {
			m = table.Add("f", nil, 1, 1)
		}
		e.mustApply("row", m)
		e.pass(1)
		e.mustApply("row", m)
		e.pass(1)
		e.close()
		e.schema = testSchema(t, specs[1])
		e.open()
		err := e.ReadRow(t.Context(), testTable, []byte("row"), nil, func([]byte, []table.Cell) error { return nil })
		if !errors.Is(err, ikey.ErrBadKey) {
			t.Errorf("%s read as %s: %v", specs[0], specs[1], err)
		}
		if err := e.Compact(context.Background(), testTable, true); !errors.Is(err, ikey.ErrBadKey) {
			t.Errorf("%s compacted as %s: %v", specs[0], specs[1], err)
		}
	}
}
