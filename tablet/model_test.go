package tablet

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/table/hll"
)

// The model implements the rules of table's package comment in the simplest way: maps, changed in
// commit order, with versions=n enforced at once.
type model struct {
	rows  map[string]map[column]map[int64]string
	rules map[string]rule
	now   int64 // latest time of a read: ages never shrink
}

type column struct{ family, qualifier string }

type rule struct {
	versions int           // 0: all
	age      time.Duration // 0: for ever
}

func newModel(rules map[string]rule) *model {
	return &model{rows: map[string]map[column]map[int64]string{}, rules: rules}
}

func (m *model) apply(row string, stamp int64, ms []table.Mutation) {
	r := m.rows[row]
	if r == nil {
		r = map[column]map[int64]string{}
		m.rows[row] = r
	}
	for _, mu := range ms {
		c := column{mu.Family, string(mu.Qualifier)}
		switch mu.Op {
		case table.OpSet:
			ts := mu.Timestamp
			if ts == table.ServerTimestamp {
				ts = stamp
			}
			if r[c] == nil {
				r[c] = map[int64]string{}
			}
			r[c][ts] = string(mu.Value)
			m.limit(r[c], mu.Family)
		case table.OpAdd, table.OpMerge:
			if r[c] == nil {
				r[c] = map[int64]string{}
			}
			value := operandOf(&mu)
			if old, there := r[c][mu.Timestamp]; there {
				value = m.fold(mu.Family, old, value)
			}
			r[c][mu.Timestamp] = value
			m.limit(r[c], mu.Family)
		case table.OpDeleteColumn:
			maps.DeleteFunc(r[c], func(ts int64, _ string) bool { return ts >= mu.Start && mu.End.Contains(ts) })
		case table.OpDeleteFamily:
			maps.DeleteFunc(r, func(c column, _ map[int64]string) bool { return c.family == mu.Family })
		case table.OpDeleteRow:
			clear(r)
		}
	}
}

// limit enforces versions=n in a column.
func (m *model) limit(c map[int64]string, family string) {
	n := m.rules[family].versions
	if n == 0 || len(c) <= n {
		return
	}
	stamps := slices.Sorted(maps.Keys(c))
	for _, old := range stamps[:max(0, len(stamps)-n)] {
		delete(c, old)
	}
}

// fold is the aggregate of the family with that name.
func (m *model) fold(family, a, b string) string {
	switch {
	case strings.HasPrefix(family, "hll"):
		var s hll.Sketch
		if err := errors.Join(s.Merge([]byte(a)), s.Merge([]byte(b))); err != nil {
			panic(err)
		}
		return string(s.Append(nil))
	case strings.HasPrefix(family, "min"):
		return string(table.Integer(min(integerOf(a), integerOf(b))))
	case strings.HasPrefix(family, "max"):
		return string(table.Integer(max(integerOf(a), integerOf(b))))
	}
	return string(table.Integer(integerOf(a) + integerOf(b)))
}

// operandOf returns the cell that an add or merge makes where there is none.
func operandOf(m *table.Mutation) string {
	if m.Op == table.OpAdd && strings.HasPrefix(m.Family, "hll") {
		return string(hll.AppendOne(nil, integerOf(string(m.Value))))
	}
	return string(m.Value)
}

func integerOf(value string) int64 { return int64(binary.BigEndian.Uint64([]byte(value))) }

func (m *model) read(row string, now int64) []table.Cell {
	m.now = max(m.now, now)
	var cells []table.Cell
	for c, versions := range m.rows[row] {
		age := m.rules[c.family].age.Microseconds()
		for ts, v := range versions {
			if age == 0 || m.now-ts <= age {
				cells = append(cells, table.Cell{Family: c.family, Qualifier: []byte(c.qualifier), Timestamp: ts, Value: []byte(v)})
			}
		}
	}
	slices.SortFunc(cells, func(a, b table.Cell) int { return table.CompareCells(&a, &b) })
	return cells
}

// randomRun makes random changes and compares reads with the model.
type randomRun struct {
	*env
	r     *rand.Rand
	m     *model
	count int
}

var modelFamilies = map[string]string{
	"all": "all:", "one": "one:versions=1", "three": "three:versions=3,group=g2,compression=zstd",
	"young": "young:age=100s", "both": "both:versions=2,age=200s,group=g2",
	"sum": "sum:aggregate=sum", "sum2": "sum2:versions=2,aggregate=sum,group=g2", "min": "min:age=200s,aggregate=min", "max3": "max3:versions=3,aggregate=max",
	"hll2": "hll2:versions=2,aggregate=hll",
}

// aggregateFamilies are those of modelFamilies with an aggregate.
var aggregateFamilies = []string{"hll2", "max3", "min", "sum", "sum2"}

func (rr *randomRun) row() string { return fmt.Sprintf("row\x00%d", rr.r.IntN(6)) }

func (rr *randomRun) family() string {
	return slices.Sorted(maps.Keys(modelFamilies))[rr.r.IntN(len(modelFamilies))]
}

// plainFamily returns a family whose cells are set.
func (rr *randomRun) plainFamily() string {
	for {
		if f := rr.family(); !slices.Contains(aggregateFamilies, f) {
			return f
		}
	}
}

// operand adds a small or an extreme integer.
func (rr *randomRun) operand() table.Mutation {
	n := rr.r.Int64N(100) - 50
	if rr.r.IntN(20) == 0 {
		n = []int64{math.MinInt64, math.MaxInt64}[rr.r.IntN(2)]
	}
	family := aggregateFamilies[rr.r.IntN(len(aggregateFamilies))]
	if at := rr.timestamp(); at != table.ServerTimestamp {
		return table.Add(family, rr.qualifier(), at, n)
	}
	if family == "hll2" {
		return table.Merge(family, rr.qualifier(), 0, rr.sketch(n))
	}
	return table.Merge(family, rr.qualifier(), 0, table.Integer(n))
}

// sketch returns a sketch of integers from n: of none, of few, or of so many that it is normal, perhaps with others.
func (rr *randomRun) sketch(n int64) []byte {
	var s hll.Sketch
	count := int64(2)
	if rr.r.IntN(4) == 0 {
		count = []int64{0, 2000, 15000, 30000}[rr.r.IntN(4)]
	}
	for i := range count {
		s.Add(n + i)
	}
	return s.Append(nil)
}

func (rr *randomRun) qualifier() []byte {
	return []byte([]string{"", "q", "q\x00", "q\x00\xff"}[rr.r.IntN(4)])
}

func (rr *randomRun) timestamp() int64 {
	if rr.r.IntN(3) == 0 {
		return table.ServerTimestamp
	}
	return rr.clock.micros.Load() - rr.r.Int64N(10)*30_000_000
}

func (rr *randomRun) mutations() []table.Mutation {
	var ms []table.Mutation
	for range 1 + rr.r.IntN(4) {
		switch k := rr.r.IntN(20); {
		case k < 5:
			ms = append(ms, rr.operand())
		case k < 14:
			rr.count++
			ms = append(ms, table.Set(rr.plainFamily(), rr.qualifier(), rr.timestamp(), fmt.Appendf(nil, "v%d", rr.count)))
		case k < 16:
			ms = append(ms, table.DeleteColumn(rr.family(), rr.qualifier()))
		case k < 18:
			start := rr.clock.micros.Load() - rr.r.Int64N(10)*30_000_000
			ms = append(ms, table.DeleteColumnRange(rr.family(), rr.qualifier(), start, table.Before(start+rr.r.Int64N(4)*30_000_000+1)))
		case k < 19:
			ms = append(ms, table.DeleteFamily(rr.family()))
		default:
			ms = append(ms, table.DeleteRow())
		}
	}
	return ms
}

func (rr *randomRun) step() {
	ctx := context.Background()
	switch k := rr.r.IntN(1000); {
	case k < 700:
		row, ms := rr.row(), rr.mutations()
		rr.m.apply(row, rr.mustApply(row, ms...), ms)
	case k < 760:
		rr.readModifyWrite()
	case k < 800:
		rr.checkAndMutate()
	case k < 900:
		rr.check(rr.row())
	case k < 920:
		rr.clock.micros.Add(rr.r.Int64N(20_000_000))
	case k < 925:
		rr.check(rr.row())                           // so that the server has seen this time
		rr.clock.micros.Add(-rr.r.Int64N(5_000_000)) // the clock goes back
	case k < 970:
		if err := rr.Compact(ctx, testTable, false); err != nil {
			rr.t.Fatal(err)
		}
	case k < 985:
		if err := rr.Compact(ctx, testTable, true); err != nil {
			rr.t.Fatal(err)
		}
	case k < 989:
		rr.moveFamily()
	case k < 994:
		rr.close()
		rr.reopen()
	default:
		// Everything was acknowledged, so a power cut must lose nothing.
		rr.crash()
		rr.reopen()
	}
}

// moveFamily moves a family to another locality group.
func (rr *randomRun) moveFamily() {
	group := []string{table.DefaultGroup, "g2", "g3"}[rr.r.IntN(3)]
	s, err := rr.schema.Apply(table.FamilySpec{Name: rr.family(), Group: group})
	if err != nil {
		rr.t.Fatal(err)
	}
	if err := rr.SetSchema(s); err != nil {
		rr.t.Fatal(err)
	}
	rr.schema = s
}

// reopen opens the server with the clock at its latest time so far: only a running server knows
// what had expired.
func (rr *randomRun) reopen() {
	rr.m.now = max(rr.m.now, rr.clock.micros.Load())
	rr.clock.micros.Store(rr.m.now)
	rr.open()
}

func (rr *randomRun) readModifyWrite() {
	row, fam, q := rr.row(), "all", []byte("counter")
	n := rr.r.Int64N(100)
	rules := []table.Rule{
		{Op: table.RuleIncrement, Family: fam, Qualifier: q, Amount: n},
		{Op: table.RuleAppend, Family: "one", Qualifier: []byte("log"), Value: []byte("+")},
		{Op: table.RuleIncrement, Family: fam, Qualifier: q, Amount: 1},
	}
	got, err := rr.ReadModifyWrite(context.Background(), testTable, []byte(row), rules)
	if err != nil {
		rr.t.Fatal(err)
	}
	now := rr.clock.micros.Load()
	newest := func(fam, q string) string {
		for _, c := range rr.m.read(row, now) {
			if c.Family == fam && string(c.Qualifier) == q {
				return string(c.Value)
			}
		}
		return ""
	}
	old := int64(0)
	if v := newest(fam, string(q)); v != "" {
		old = int64(binary.BigEndian.Uint64([]byte(v)))
	}
	want := table.Row{Key: []byte(row), Cells: []table.Cell{
		{Family: "all", Qualifier: q, Timestamp: got.Cells[0].Timestamp, Value: binary.BigEndian.AppendUint64(nil, uint64(old+n+1))},
		{Family: "one", Qualifier: []byte("log"), Timestamp: got.Cells[0].Timestamp, Value: []byte(newest("one", "log") + "+")},
	}}
	if !reflect.DeepEqual(got, want) {
		rr.t.Fatalf("read-modify-write: got %q, want %q", cellStrings(got.Cells), cellStrings(want.Cells))
	}
	var ms []table.Mutation
	for _, c := range got.Cells {
		ms = append(ms, table.Set(c.Family, c.Qualifier, c.Timestamp, c.Value))
	}
	rr.m.apply(row, 0, ms)
}

func (rr *randomRun) checkAndMutate() {
	row, fam := rr.row(), rr.plainFamily()
	p, err := table.Compile(table.FamilyRegex(fam))
	if err != nil {
		rr.t.Fatal(err)
	}
	yes := []table.Mutation{table.DeleteFamily(fam)}
	no := []table.Mutation{table.Set(fam, []byte("absent"), 1, []byte("was absent"))}
	matched, err := rr.CheckAndMutate(context.Background(), testTable, []byte(row), p, yes, no)
	if err != nil {
		rr.t.Fatal(err)
	}
	want := slices.ContainsFunc(rr.m.read(row, rr.clock.micros.Load()), func(c table.Cell) bool { return c.Family == fam })
	if matched != want {
		rr.t.Fatalf("check of family %s in row %q: %v, want %v", fam, row, matched, want)
	}
	if matched {
		rr.m.apply(row, 0, yes)
	} else {
		rr.m.apply(row, 0, no)
	}
}

func (rr *randomRun) check(row string) {
	rr.t.Helper()
	want := rr.m.read(row, rr.clock.micros.Load())
	if got := rr.read(row, nil); !slices.Equal(got, cellStrings(want)) {
		rr.t.Fatalf("row %q at %d:\ngot  %q\nwant %q", row, rr.clock.micros.Load(), got, cellStrings(want))
	}
	// Through a filter, of which storage evaluates a part itself.
	fam := rr.family()
	limit := 1 + rr.r.IntN(2)
	f := table.Chain{table.FamilyRegex(fam), table.CellsPerColumnLimit(limit)}
	var some []table.Cell
	in := 0
	for i, c := range want {
		if in++; i == 0 || cmp.Compare(want[i-1].Family, c.Family) != 0 || string(want[i-1].Qualifier) != string(c.Qualifier) {
			in = 1
		}
		if c.Family == fam && in <= limit {
			some = append(some, c)
		}
	}
	if got := rr.read(row, f); !slices.Equal(got, cellStrings(some)) {
		rr.t.Fatalf("row %q, family %s, %d versions:\ngot  %q\nwant %q", row, fam, limit, got, cellStrings(some))
	}
}

// checkAll compares the whole table, read by a scan in pieces.
func (rr *randomRun) checkAll() {
	var start []byte
	got := map[string][]string{}
	last := ""
	for {
		n := 0
		next, err := rr.Scan(context.Background(), testTable, Range{Start: start}, nil, func(key []byte, cells []table.Cell) error {
			if string(key) <= last {
				rr.t.Fatalf("scan: row %q after %q", key, last)
			}
			if n++; n == 3 {
				return ErrStop
			}
			last = string(key)
			got[last] = cellStrings(cells)
			if n == 2 && rr.r.IntN(2) == 0 {
				return ErrLast
			}
			return nil
		})
		if err != nil {
			rr.t.Fatal(err)
		}
		if start = next; next == nil {
			break
		}
	}
	want := map[string][]string{}
	for row := range rr.m.rows {
		if cells := rr.m.read(row, rr.clock.micros.Load()); len(cells) > 0 {
			want[row] = cellStrings(cells)
		}
	}
	if !reflect.DeepEqual(got, want) {
		rr.t.Fatalf("scan:\ngot  %q\nwant %q", got, want)
	}
}

func newRandomRun(t testing.TB, seed uint64) *randomRun {
	rules := map[string]rule{
		"one": {versions: 1}, "three": {versions: 3}, "young": {age: 100 * time.Second}, "both": {versions: 2, age: 200 * time.Second},
		"sum2": {versions: 2}, "hll2": {versions: 2}, "min": {age: 200 * time.Second}, "max3": {versions: 3},
	}
	cfg := Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, FilesMerge: 3, MajorPeriod: 1000 * time.Hour, CompactionBytesPerSecond: -1}
	return &randomRun{
		env: newEnv(t, cfg, slices.Collect(maps.Values(modelFamilies))...),
		r:   rand.New(rand.NewPCG(seed, 7)), m: newModel(rules),
	}
}

// I1, I3, I8 and the semantics of deletions and GC: random operations with deletions, explicit old
// timestamps, compactions, restarts and power cuts at random moments agree with the model.
func TestModel(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(6)) {
		rr := newRandomRun(t, seed+run)
		for range 2500 {
			rr.step()
		}
		rr.checkAll()
		rr.close()
	}
}
