package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

// backwardRun writes random rows of all kinds and compares reversed scans with forward ones.
type backwardRun struct {
	*env
	r *rand.Rand
}

func (br *backwardRun) row() string {
	n := br.r.IntN(600)
	switch n % 7 {
	case 0:
		return fmt.Sprintf("r%d\x00", n)
	case 1:
		return fmt.Sprintf("r%d\x00\xff%d", n, n%3)
	case 2:
		return strings.Repeat("r", n%50) + "\xff\xff"
	}
	return fmt.Sprintf("r%05d", n)
}

func (br *backwardRun) mutations() []table.Mutation {
	family := []string{"f", "g", "m", "big"}[br.r.IntN(4)]
	switch k := br.r.IntN(40); {
	case k == 0:
		return []table.Mutation{table.DeleteRow()}
	case k == 1:
		return []table.Mutation{table.DeleteFamily(family)}
	case k < 4:
		return []table.Mutation{table.DeleteColumn(family, []byte("q1"))}
	}
	var ms []table.Mutation
	for range 1 + br.r.IntN(3) {
		value := randomValue(br.r.IntN(100))
		if family == "big" && br.r.IntN(30) == 0 {
			value = randomValue(200<<10 + br.r.IntN(100<<10)) // in a block of its own, which passes the gate
		}
		ms = append(ms, table.Set(family, fmt.Appendf(nil, "q%d", br.r.IntN(30)), int64(1+br.r.IntN(3)), value))
	}
	if br.r.IntN(50) == 0 { // a row of several restart intervals
		for i := range 100 {
			ms = append(ms, table.Set(family, fmt.Appendf(nil, "w%03d", i), 1, []byte("v")))
		}
	}
	return ms
}

// change changes the table and how it is stored.
func (br *backwardRun) change() {
	for range 300 {
		br.mustApply(br.row(), br.mutations()...)
	}
	if br.r.IntN(3) > 0 {
		if err := br.Compact(context.Background(), testTable, br.r.IntN(8) == 0); err != nil {
			br.t.Fatal(err)
		}
	}
}

// reshape splits, merges and compacts tablets.
func (br *backwardRun) reshape(r *rand.Rand) {
	ctx := context.Background()
	all, err := br.served.tabletsOf(testTable)
	if err != nil {
		return
	}
	i := r.IntN(len(all))
	switch k := r.IntN(10); {
	case k < 4:
		_, _, _ = br.Split(ctx, all[i].ref(), fmt.Appendf(nil, "r%05d", r.IntN(600))) // it may lie in another tablet
	case k < 7 && i > 0:
		_ = br.Merge(ctx, all[i-1].ref(), all[i].ref()) // it may be busy
	default: // one tablet only: its neighbours keep the files that they share with it
		_ = br.CompactTablet(ctx, all[i].ref(), k == 9)
	}
}

func (br *backwardRun) bound() []byte {
	switch br.r.IntN(4) {
	case 0:
		return nil
	case 1:
		return []byte(br.row() + "\x00")
	}
	return []byte(br.row())
}

// read returns the rows of a range, read in pieces of random size.
func (br *backwardRun) read(rg Range, f *table.Program) (rows []string) {
	br.t.Helper()
	for {
		n, last := 1+br.r.IntN(100), ErrLast
		if br.r.IntN(2) == 0 {
			last = ErrStop
		}
		most := &ScanBounds{Rows: []int{0, 1, 7, 50}[br.r.IntN(4)]}
		next, err := br.For(nil).Scan(context.Background(), testTable, rg, f, most, func(key []byte, cells []table.Cell) error {
			if n--; n == 0 && last == ErrStop {
				return ErrStop
			}
			rows = append(rows, fmt.Sprintf("%q %.300q", key, cellStrings(cells)))
			if n == 0 {
				return ErrLast
			}
			return nil
		})
		if errors.Is(err, ErrAccessChanged) || err != nil {
			br.t.Fatal(err)
		}
		if next == nil {
			return rows
		}
		rg.Resume(next)
	}
}

// rowSet returns a set of random rows and ranges; nil for all.
func (br *backwardRun) rowSet() *table.RowSet {
	if br.r.IntN(2) == 0 {
		return nil
	}
	var ranges []table.RowRange
	for range br.r.IntN(1 << br.r.IntN(10)) {
		if br.r.IntN(4) > 0 {
			ranges = append(ranges, table.RowKeyRange([]byte(br.row())))
		} else {
			ranges = append(ranges, table.RowRange{Start: []byte(br.row()), End: br.bound()})
		}
	}
	for i := 100; br.r.IntN(3) == 0 && i < 400; i++ { // rows that are close together
		ranges = append(ranges, table.RowKeyRange(fmt.Appendf(nil, "r%05d", i)))
	}
	return table.NewRowSet(ranges)
}

// without returns the rows of a scan that are in a set.
func (br *backwardRun) without(all []string, set *table.RowSet) (rows []string) {
	for _, row := range all {
		text, _ := strconv.QuotedPrefix(row)
		key, err := strconv.Unquote(text)
		if err != nil {
			br.t.Fatal(err)
		}
		for i := range set.Len() {
			if in := set.At(i); key >= string(in.Start) && (len(in.End) == 0 || key < string(in.End)) {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func (br *backwardRun) compare() {
	br.t.Helper()
	rg := Range{Start: br.bound(), End: br.bound()}
	var f *table.Program
	if br.r.IntN(3) > 0 {
		var err error
		filter := []table.Filter{table.FamilyRegex("f|m"), table.RowRegex(`r0*[0-9]*[02468]`), table.CellsPerRowLimit(2),
			table.Chain{table.QualifierRegex("q.*"), table.CellsPerColumnLimit(1)}}[br.r.IntN(4)]
		if f, err = table.Compile(filter); err != nil {
			br.t.Fatal(err)
		}
	}
	forward := br.read(rg, f)
	if set := br.rowSet(); set != nil {
		want := br.without(forward, set)
		rg.Rows = set
		if forward = br.read(rg, f); !slices.Equal(forward, want) {
			br.t.Fatalf("[%q, %q) in a set of %d ranges: %d rows, want %d:\n%.500q\n%.500q", rg.Start, rg.End, set.Len(), len(forward), len(want), forward, want)
		}
	}
	rg.Reversed = true
	backward := br.read(rg, f)
	slices.Reverse(backward)
	if !slices.Equal(forward, backward) {
		for i := range max(len(forward), len(backward)) {
			if i >= len(forward) || i >= len(backward) || forward[i] != backward[i] {
				br.t.Fatalf("[%q, %q): %d rows forward, %d backward; row %d is\n%s\nforward and backward\n%s", rg.Start, rg.End, len(forward), len(backward),
					i, append(forward, "-")[min(i, len(forward))], append(backward, "-")[min(i, len(backward))])
			}
		}
	}
}

// round compares scans while tablets are reshaped, and another reader shares the memory for large cells.
func (br *backwardRun) round(r *rand.Rand) {
	var others sync.WaitGroup
	defer others.Wait()
	stop := make(chan struct{})
	defer close(stop)
	until := func(f func()) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	until(func() { br.reshape(r) })
	until(func() {
		_, err := br.Scan(context.Background(), testTable, Range{Reversed: true}, nil, func([]byte, []table.Cell) error { return nil })
		if err != nil {
			br.t.Error(err)
		}
	})
	for range 6 {
		br.compare()
	}
}

// A reversed scan returns the rows of the forward scan from the last to the first, for all kinds of files,
// groups, deletions, ranges and filters, while tablets are split, merged and compacted.
func TestReversedScan(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(soakRuns(4)) {
		r := rand.New(rand.NewPCG(seed, run))
		cfg := Config{MemtablesBytesMax: 64 << 20, FilesMerge: 3 + r.IntN(6), LargeReadBytes: 1 << 20, CacheBytes: []int64{1, 1 << 20, 64 << 20}[r.IntN(3)]}
		e := newEnv(t, cfg, "f:versions=2", "g:group=g2,compression=zstd,block=4KiB", "m:group=mem,in-memory,block=1KiB", "big:group=big,compression=none")
		br := &backwardRun{env: e, r: r}
		for range 12 {
			br.change()
			br.round(rand.New(rand.NewPCG(r.Uint64(), run)))
		}
		e.close()
	}
}

// A reversed scan beside writers returns each row that stays, in order, and each row as of one time.
func TestReversedScanBesideWrites(t *testing.T) {
	const rows = 200
	e := newEnv(t, Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10}, "f:versions=1")
	name := func(i int) string { return fmt.Sprintf("row%04d", i) }
	write := func(i, n int) {
		v := fmt.Sprint(n)
		e.mustApply(name(i), set("f", "a", int64(n), v), set("f", "b", int64(n), v))
	}
	for i := range rows {
		write(i, 1)
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 2; ; n++ {
			select {
			case <-stop:
				return
			default:
				write(n*7919%rows, n)
				e.mustApply(fmt.Sprintf("row%04d\x00", n%rows), set("f", "a", 1, "x"), set("f", "b", 1, "x"))
				e.mustApply(fmt.Sprintf("row%04d\x00", (n+rows/2)%rows), table.DeleteRow())
			}
		}
	})
	for range 300 {
		last, stayed := "s", 0
		_, err := e.Scan(t.Context(), testTable, Range{Reversed: true}, nil, func(key []byte, cells []table.Cell) error {
			if string(key) >= last {
				t.Fatalf("row %q after %q", key, last)
			}
			if len(cells) != 2 || string(cells[0].Value) != string(cells[1].Value) {
				t.Fatalf("row %q is %q", key, cellStrings(cells))
			}
			if last = string(key); key[len(key)-1] != 0 {
				stayed++
			}
			return nil
		})
		if err != nil || stayed != rows {
			t.Fatalf("%d rows, want %d: %v", stayed, rows, err)
		}
	}
	close(stop)
	writer.Wait()
}

// A reversed scan ends where the server's rows end, and returns the bound at which it continues.
func TestReversedScanStopsAtWhatIsNotServed(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	s, err := table.NewSchema("parts", 2).Apply(table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	for i, rg := range [][2]string{{"", "d"}, {"d", "h"}, {"p", "w"}} { // (h, p] and (w, …) are not served
		m := &Meta{ID: uint64(10 + i), Table: 2, Start: []byte(rg[0]), End: []byte(rg[1]), LastMajor: e.clock.now()}
		if err := e.Load(t.Context(), Load{Meta: m, Schema: s}); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []string{"a", "d", "d\x00", "h", "p\x00", "w"} {
		done := make(chan error, 1)
		e.Apply("parts", &table.RowMutation{Row: []byte(row), Mutations: []table.Mutation{set("f", "q", 1, "v")}}, func(_ int64, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatalf("row %q: %v", row, err)
		}
	}
	const missing = "missing"
	for _, test := range []struct {
		name       string
		start, end string // end "-" is none
		last       string // the row at which emit ends it
		rows, next string // next: "missing" with ErrNotServing, at the bound that follows
	}{
		{"from the end of the table", "", "-", "", "", missing},
		{"from above the gap", "", "w\x00", "", "w p\x00 ", missing + "p\x00"},
		{"from below a row at a tablet's end", "q", "w", "", "", ""},
		{"from the gap", "", "k", "", "", missing + "k"},
		{"from the row below the gap", "", "h\x00", "", "h d\x00 d a ", ""},
		{"from below that row", "b", "h", "", "d\x00 d ", ""},
		{"the last row of a tablet only", "d", "d\x00", "", "d ", ""},
		{"ended", "", "h\x00", "d\x00", "h d\x00 ", "d\x00"},
		{"of nothing", "x", "x", "", "", ""},
		{"before all rows", "", "\x00", "", "", ""},
	} {
		rg := Range{Start: []byte(test.start), Reversed: true}
		if test.end != "-" {
			rg.End = []byte(test.end)
		}
		rows := ""
		next, err := e.Scan(t.Context(), "parts", rg, nil, func(key []byte, _ []table.Cell) error {
			rows += string(key) + " "
			if string(key) == test.last {
				return ErrLast
			}
			return nil
		})
		got := string(next)
		if errors.Is(err, api.ErrNotServing) {
			got, err = missing+got, nil
		}
		if err != nil || rows != test.rows || got != test.next {
			t.Errorf("%s: rows %q, next %q, %v; want %q, %q", test.name, rows, got, err, test.rows, test.next)
		}
	}
}
