package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
)

// fill writes versions 1 to n of one column and deletes each of dels of them, which a hostile
// client could do.
func fill(e *env, fam string, n, dels int64) {
	const batch = 5000
	q := []byte("q")
	for at := int64(1); at <= n; at += batch {
		var ms []table.Mutation
		for ts := at; ts < min(at+batch, n+1); ts++ {
			ms = append(ms, table.Set(fam, q, ts, []byte("v")))
		}
		e.mustApply("r", ms...)
	}
	for at := int64(0); at < dels; at += batch {
		var ms []table.Mutation
		for i := at; i < min(at+batch, dels); i++ {
			start := 2 + i*7919%n // all over the column
			ms = append(ms, table.DeleteColumnRange(fam, q, start, table.Before(start+1)))
		}
		e.mustApply("r", ms...)
	}
}

// A column with any number of versions and deletions is read in time that does not grow with their
// product. The bound is a tenth of what the square took.
func TestHostileColumn(t *testing.T) {
	const n = 100_000
	for _, tc := range []struct {
		spec string
		dels int64
		want int // cells left
	}{
		{"f:", n, 1},
		{"f:versions=3", n, 0},
		{"f:versions=1000000", n, 1},
		{"f:versions=50000", 1000, 49502},
		{"f:versions=1000000", 1, n - 1},
		{"f:versions=99999", 1, n - 2},
	} {
		e := newEnv(t, Config{}, tc.spec)
		fill(e, "f", n, tc.dels)
		best := time.Duration(math.MaxInt64) // the machine may be busy
		for range 3 {
			began, cells := time.Now(), 0
			err := e.ReadRow(context.Background(), testTable, []byte("r"), nil, func(_ []byte, got []table.Cell) error {
				cells = len(got)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(began))
			if cells != tc.want {
				t.Fatalf("%s, %d deletions: %d cells, want %d", tc.spec, tc.dels, cells, tc.want)
			}
		}
		t.Logf("%s, %d versions, %d deletions: %v", tc.spec, n, tc.dels, best)
		if best > 2*time.Second {
			t.Errorf("%s, %d versions, %d deletions: a read takes %v", tc.spec, n, tc.dels, best)
		}
		e.close()
	}
}

// A read whose context has ended stops anywhere inside a row.
func TestCancelledInsideRow(t *testing.T) {
	const n = 3 * checkEntries
	for _, tc := range []struct {
		spec string
		dels int64
	}{
		{"f:", 0}, {"f:", n}, {"f:versions=5000", n}, {"f:versions=1000000", 1},
	} {
		e := newEnv(t, Config{}, tc.spec)
		fill(e, "f", n, tc.dels)
		why := errors.New("the reader left")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(why)
		err := e.ReadRow(ctx, testTable, []byte("r"), nil, func([]byte, []table.Cell) error {
			t.Errorf("%s: a row after the end", tc.spec)
			return nil
		})
		if !errors.Is(err, why) {
			t.Errorf("%s, %d deletions: got error %v", tc.spec, tc.dels, err)
		}
		e.close()
	}
}

// The deletions of a column that a read holds are bounded like its cells.
func TestDeletionsHeldAreBounded(t *testing.T) {
	e := newEnv(t, Config{RowReadBytesMax: 1 << 20}, "f:")
	fill(e, "f", 10, 1<<20/rangeBytes)
	if got := e.read("r", nil); len(got) != 1 {
		t.Fatalf("got %q", got)
	}
	fill(e, "f", 10, 2)
	err := e.ReadRow(context.Background(), testTable, []byte("r"), nil, func([]byte, []table.Cell) error { return nil })
	if !errors.Is(err, table.ErrLimit) {
		t.Fatalf("got error %v", err)
	}
}

// A read whose context has ended also stops where it only skips.
func TestCancelledWhileSkipping(t *testing.T) {
	e := newEnv(t, Config{}, "f:versions=1")
	for i := range 200 {
		var ms []table.Mutation
		for ts := range int64(40) { // long enough for a seek
			ms = append(ms, set("f", fmt.Sprintf("q%d", i), ts, "v"))
		}
		e.mustApply("r", ms...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := e.ReadRow(ctx, testTable, []byte("r"), nil, func([]byte, []table.Cell) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got error %v", err)
	}
}

// A column too large to be held while it is judged is compacted to the versions that a read
// returned before, also between other columns and over several files.
func TestCompactLargeHistory(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int{10, 20_000} { // held, and read twice
		e := newEnv(t, Config{FilesMerge: 30}, "f:versions=60")
		for i := range int64(4) {
			for k := range int64(50) {
				e.mustApply("r", set("f", "q", 1+k*4+i, fmt.Sprintf("%d-%d-%s", i, k, bytes.Repeat([]byte("x"), size))))
			}
			e.mustApply("r", table.DeleteColumnRange("f", []byte("q"), 150+i, table.Before(170+i)), set("f", "p", 1+i, "p"), set("f", "r", 1+i, "r"))
			e.mustApply("s", set("f", "q", 1+i, "s"), table.DeleteColumnRange("f", []byte("q"), 1+i, table.Before(2+i)))
			if err := e.Compact(ctx, testTable, false); err != nil {
				t.Fatal(err)
			}
		}
		want, wantS := e.read("r", nil), e.read("s", nil)
		if len(want) < 20 {
			t.Fatalf("%d cells to start with", len(want))
		}
		if err := e.Compact(ctx, testTable, true); err != nil {
			t.Fatal(err)
		}
		if got := e.read("r", nil); !slices.Equal(got, want) {
			t.Fatalf("values of %d bytes: got %d cells, want %d\ngot  %q\nwant %q", size, len(got), len(want), got, want)
		}
		if got := e.read("s", nil); !slices.Equal(got, wantS) {
			t.Fatalf("got %q, want %q", got, wantS)
		}
		stats, err := e.TabletStats(testTable)
		if err != nil {
			t.Fatal(err)
		}
		if n := stats[0].Files[0].Entries; n != int64(len(want)+len(wantS)) {
			t.Fatalf("%d entries in the file, want %d", n, len(want)+len(wantS))
		}
		e.close()
	}
}

// listSource is a source in memory whose seeks can fail.
type listSource struct {
	entries []heldEntry
	at      int
	seek    func(s *listSource)
	err     error
}

func (s *listSource) ok() bool      { return s.at < len(s.entries) && s.err == nil }
func (s *listSource) First() bool   { s.at = 0; return s.ok() }
func (s *listSource) Next() bool    { s.at++; return s.ok() }
func (s *listSource) Key() []byte   { return s.entries[s.at].key }
func (s *listSource) Value() []byte { return s.entries[s.at].value }
func (s *listSource) Err() error    { return s.err }

func (s *listSource) SeekGE(key []byte) bool {
	s.at = sort.Search(len(s.entries), func(i int) bool { return bytes.Compare(s.entries[i].key, key) >= 0 })
	s.seek(s)
	return s.ok()
}

// A compaction whose second read of a column fails, or differs from the first, fails and does not
// write an incomplete file.
func TestCompactSecondReading(t *testing.T) {
	broken := errors.New("broken disk")
	for _, tc := range []struct {
		name string
		seek func(s *listSource)
		want error
	}{
		{"sound", func(*listSource) {}, nil},
		{"error", func(s *listSource) { s.err = broken }, broken},
		{"shorter", func(s *listSource) { s.entries = s.entries[:len(s.entries)-1] }, errColumnChanged},
		{"empty", func(s *listSource) { s.entries = nil }, errColumnChanged},
		{"another", func(s *listSource) { s.at++ }, errColumnChanged},
	} {
		sc := newSchema(testSchema(t, "f:versions=100"), nil)
		f := &sc.families[0]
		column := ikey.AppendColumn(ikey.AppendFamily(ikey.AppendRow(nil, []byte("r")), f.Name, f.ID), []byte("q"))
		src := &listSource{seek: tc.seek, entries: []heldEntry{{
			ikey.AppendDeleteColumn(bytes.Clone(column), 50), ikey.AppendRange(nil, 5, 8),
		}}}
		for ts := int64(40); ts > 0; ts-- {
			src.entries = append(src.entries, heldEntry{ikey.AppendCell(bytes.Clone(column), ts, uint64(ts)), make([]byte, holdBytes/16)})
		}
		var stamps []int64
		c := compaction{schema: sc, fullHistory: true, emit: func(_ *family, key, _ []byte) error {
			stamps = append(stamps, ikey.Timestamp(key))
			return nil
		}}
		c.judge.Init(1, math.MaxUint64)
		c.merge.reset([]source{src})
		if err := c.run(); !errors.Is(err, tc.want) {
			t.Fatalf("%s: got error %v, want %v", tc.name, err, tc.want)
		}
		if tc.want == nil && (len(stamps) != 37 || slices.Contains(stamps, 6) || !slices.Contains(stamps, 8)) {
			t.Fatalf("%s: kept %v", tc.name, stamps)
		}
	}
}
