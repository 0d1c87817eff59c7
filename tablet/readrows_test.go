package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

// readRows reads rows with ReadRows, each as its cells; at is the index of the error.
func readRows(t testing.TB, as For, keys []string, f *table.Program) (rows [][]string, at int, err error) {
	t.Helper()
	rows = make([][]string, len(keys))
	requested, last := make([][]byte, len(keys)), -1
	for i, k := range keys {
		requested[i] = []byte(k)
	}
	at, err = as.ReadRows(t.Context(), testTable, requested, f, func(n int, key []byte, cells []table.Cell) error {
		if n <= last || string(key) != keys[n] {
			t.Errorf("row %d, %q, is emitted as %q after row %d", n, keys[n], key, last)
		}
		last, rows[n] = n, cellStrings(cells)
		return nil
	})
	return rows, at, err
}

// TestReadRowsAsReadRow: rows that are read together, in any order, are the same as when read one
// by one.
func TestReadRowsAsReadRow(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	for range soakRuns(4) {
		e := newEnv(t, Config{MemtablesBytesMax: 1 << 30, CacheBytes: 1 << 20}, "f:versions=2,block=1KiB", "g:group=other,in-memory", "h:group=third")
		var keys []string
		for i := range 400 {
			keys = append(keys, fmt.Sprintf("%03d", i))
		}
		pick := func() string { return keys[rng.IntN(len(keys))] }
		write := func() {
			for range 300 + rng.IntN(300) {
				switch row := pick(); rng.IntN(12) {
				case 0:
					e.mustApply(row, table.DeleteRow())
				case 1:
					e.mustApply(row, table.DeleteFamily("f"))
				case 2: // more entries than are stepped over
					for q := range 20 {
						e.mustApply(row, set("f", fmt.Sprint("many", q), 5, "v"))
					}
				case 3:
					e.mustApply(row, table.Set("h", []byte("large"), 1, randomValue(rng.IntN(5000))))
				default:
					e.mustApply(row, set([]string{"f", "g", "h"}[rng.IntN(3)], fmt.Sprint("q", rng.IntN(3)), rng.Int64N(9), fmt.Sprint(rng.Uint32())))
				}
			}
		}
		for i := range 4 {
			write()
			if err := e.Compact(t.Context(), testTable, i == 1); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				if _, _, err := e.Split(t.Context(), lastTablet, []byte("150")); err != nil {
					t.Fatal(err)
				}
			}
		}
		write()
		filters := []table.Filter{nil, table.FamilyRegex("f"), table.ValueRegex(".*7.*"), table.CellsPerRowLimit(1), table.RowRegex(".*[13579]"), table.Chain{table.FamilyRegex("f"), table.QualifierRegex("q1")}}
		for range 200 {
			filter := filters[rng.IntN(len(filters))]
			var f *table.Program
			if filter != nil {
				f = mustCompile(t, filter)
			}
			var ask []string
			for range 1 + rng.IntN(4) { // pieces in order, scattered, repeated, backwards
				at := rng.IntN(len(keys))
				switch rng.IntN(5) {
				case 0:
					ask = append(ask, pick(), pick(), pick())
				case 1:
					ask = append(ask, keys[at], keys[at], keys[at]+"\x00")
				case 2:
					piece := slices.Clone(keys[at:min(at+20, len(keys))])
					slices.Reverse(piece)
					ask = append(ask, piece...)
				case 3:
					for i := at; i < min(at+200, len(keys)); i += 1 + rng.IntN(9) {
						ask = append(ask, keys[i])
					}
				default:
					ask = append(ask, keys[at:min(at+100, len(keys))]...)
				}
			}
			got, _, err := readRows(t, e.For(nil), ask, f)
			if err != nil {
				t.Fatal(err)
			}
			for i, key := range ask {
				if want := e.read(key, filter); !slices.Equal(got[i], want) {
					t.Fatalf("row %d of %q is %q, alone %q", i, ask, got[i], want)
				}
			}
		}
		e.close()
	}
}

// TestReadRowsErrors: an error belongs to one row, and earlier results hide none.
func TestReadRowsErrors(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: 1}, "f:block=1KiB")
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("%03d", i))
		e.mustApply(keys[i], table.Set("f", []byte("q"), 1, randomValue(300)))
	}
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if rows, at, err := readRows(t, e.For(nil), nil, nil); len(rows) != 0 || at != 0 || err != nil {
		t.Errorf("no rows: %d, %v", at, err)
	}
	bad := slices.Clone(keys[:20])
	bad[13] = strings.Repeat("x", 1<<17)
	if _, at, err := readRows(t, e.For(nil), bad, nil); at != 13 || !errors.Is(err, table.ErrLimit) {
		t.Errorf("a key that is too long: %d, %v", at, err)
	}
	for _, left := range []int{0, 1, 5, 20} {
		e.reads.failAfter(left)
		if _, at, err := readRows(t, e.For(nil), keys, nil); !errors.Is(err, errReadFails) || at > 10*(left+1) || left > 1 && at == 0 {
			t.Errorf("the disk fails after %d reads: %d, %v", left, at, err)
		}
		e.reads.failAfter(-1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read := 0
	requested := make([][]byte, len(keys))
	for i, k := range keys {
		requested[i] = []byte(k)
	}
	at, err := e.For(nil).ReadRows(ctx, testTable, requested, nil, func(int, []byte, []table.Cell) error {
		if read++; read == 50 {
			cancel()
		}
		return nil
	})
	if at != 50 || !errors.Is(err, context.Canceled) {
		t.Errorf("given up after 50 rows: %d, %v", at, err)
	}
	no := errors.New("no")
	at, err = e.For(nil).ReadRows(t.Context(), testTable, requested, nil, func(n int, _ []byte, _ []table.Cell) error {
		if n == 7 {
			return no
		}
		return nil
	})
	if at != 7 || err != no {
		t.Errorf("not wanted any more: %d, %v", at, err)
	}
	s := &script{changes: 1}
	if _, _, err := readRows(t, e.For(s), keys, nil); err != ErrAccessChanged {
		t.Errorf("rights have changed: %v", err)
	}
	if rows, _, err := readRows(t, e.For(s), keys, nil); err != nil || s.begun != 2 || rows[199] == nil {
		t.Errorf("rights hold the second time: %v, begun %d times", err, s.begun)
	}
	lower, _, err := e.Split(t.Context(), lastTablet, []byte("100"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Unload(t.Context(), lastTablet); err != nil {
		t.Fatal(err)
	}
	if _, at, err := readRows(t, e.For(nil), keys, nil); !errors.Is(err, api.ErrNotServing) || at != 101 && at != 0 {
		t.Errorf("half of them (tablet %v) is not here: %d, %v", lower, at, err)
	}
}

// TestReadRowsReadsNothingAbsent: absent rows cause no disk reads, also in order (paper §6, "Bloom
// filters").
func TestReadRowsReadsNothingAbsent(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: 1}, "f")
	var absent []string
	for i := range 2000 {
		e.mustApply(fmt.Sprintf("%04d", i), table.Set("f", []byte("q"), 1, randomValue(100)))
	}
	for i := range 100 {
		absent = append(absent, fmt.Sprintf("%04d+", 7*i))
	}
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readRows(t, e.For(nil), absent[:1], nil); err != nil { // opens the file
		t.Fatal(err)
	}
	e.reads.take()
	if _, _, err := readRows(t, e.For(nil), absent, nil); err != nil {
		t.Fatal(err)
	}
	if _, n := e.reads.take(); n > 5 { // the filters pass one in a hundred
		t.Errorf("%d reads for 100 rows that are not there", n)
	}
}

// BenchmarkReadRows reads a hundred rows of a cached SSTable: adjacent ones, and random ones, also
// in order.
func BenchmarkReadRows(b *testing.B) {
	const rows, batch = 20_000, 100
	e := newEnv(b, Config{MemtablesBytesMax: 1 << 30, CacheBytes: 64 << 20}, "f:compression=none")
	keys := make([][]byte, rows)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "row%06d", i)
		e.mustApply(string(keys[i]), table.Set("f", []byte("q"), 1, randomValue(1000)))
	}
	if err := e.Compact(context.Background(), testTable, true); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	scattered := func() []int {
		at := make([]int, batch)
		for i := range at {
			at[i] = rng.IntN(rows)
		}
		return at
	}
	for _, c := range []struct {
		name string
		pick func() []int
	}{
		{"adjacent", func() []int {
			at, from := make([]int, batch), rng.IntN(rows-batch)
			for i := range at {
				at[i] = from + i
			}
			return at
		}},
		{"any", scattered},
		{"any in order", func() []int { at := scattered(); slices.Sort(at); return slices.Compact(at) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var requested [64][][]byte
			for i := range requested {
				for _, at := range c.pick() {
					requested[i] = append(requested[i], keys[at])
				}
			}
			read := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := e.For(nil).ReadRows(context.Background(), testTable, requested[i%len(requested)], nil, func(int, []byte, []table.Cell) error { read++; return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(read), "ns/row")
		})
	}
}
