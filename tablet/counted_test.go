package tablet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// countedBlobs counts reads of sealed blobs.
type countedBlobs struct {
	storage.Blobs
	reads, bytes atomic.Int64
	before       atomic.Pointer[func()] // called before each read, except its own
}

// hook sets before.
func (b *countedBlobs) hook(before func()) {
	var inner atomic.Bool
	hook := func() {
		if inner.CompareAndSwap(false, true) {
			before()
			inner.Store(false)
		}
	}
	b.before.Store(&hook)
}

func (b *countedBlobs) OpenBlob(ctx context.Context, h blobfs.Handle) (storage.BlobReader, error) {
	r, err := b.Blobs.OpenBlob(ctx, h)
	if err != nil {
		return nil, err
	}
	return countedReader{r, b}, nil
}

type countedReader struct {
	storage.BlobReader
	of *countedBlobs
}

func (r countedReader) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	if before := r.of.before.Load(); before != nil {
		(*before)()
	}
	r.of.reads.Add(1)
	r.of.bytes.Add(int64(len(p)))
	return r.BlobReader.ReadChecked(p, off, ok)
}

// countReads counts the reads of files opened from now on.
func (e *env) countReads() *countedBlobs {
	b := &countedBlobs{Blobs: e.Server.cfg.Blobs}
	e.Server.useBlobs(b)
	return b
}

func randomValue(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
	return p
}

func mustCompile(t testing.TB, f table.Filter) *table.Program {
	t.Helper()
	p, err := table.Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// count scans the table through f and returns the number of rows with a result.
func (e *env) count(f *table.Program) int {
	e.t.Helper()
	n := 0
	if _, err := e.Scan(e.t.Context(), testTable, Range{}, f, func([]byte, []table.Cell) error { n++; return nil }); err != nil {
		e.t.Fatal(err)
	}
	return n
}

// A scan of a locality group with small metadata reads nothing of the pages beside it, whichever
// filter selects it (paper §6, "Locality groups").
func TestScanReadsItsGroupOnly(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: 1}, "contents:group=pages", "anchor", "language")
	counted := e.countReads()
	const rows, page = 300, 8 << 10
	for i := range rows {
		e.mustApply(fmt.Sprintf("row%05d", i), table.Set("contents", []byte(""), 1, randomValue(page)),
			table.Set("anchor", []byte("a.com"), 1, randomValue(20)), table.Set("language", []byte(""), 1, []byte("EN")))
		if i == rows/2 {
			if err := e.Compact(t.Context(), testTable, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.Compact(t.Context(), testTable, false); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f    table.Filter
		most int64 // bytes
	}{
		"family":    {table.FamilyRegex("language"), rows * 200},
		"column":    {table.ColumnRange{Family: "anchor"}, rows * 200},
		"in chain":  {table.Chain{table.CellsPerColumnLimit(1), table.FamilyRegex("anchor|language")}, rows * 200},
		"of both":   {table.Interleave{table.FamilyRegex("anchor"), table.FamilyRegex("language")}, rows * 200},
		"all of it": {table.PassAll{}, 2 * rows * page},
	} {
		before := counted.bytes.Load()
		if n := e.count(mustCompile(t, c.f)); n != rows {
			t.Errorf("%s: %d rows", name, n)
		}
		got := counted.bytes.Load() - before
		if got > c.most {
			t.Errorf("%s: %d bytes read, of %d that it may take", name, got, c.most)
		}
		if all := name == "all of it"; all != (got >= rows*page) {
			t.Errorf("%s: %d bytes read, pages are %d", name, got, rows*page)
		}
	}
}

// Lookups of absent rows and columns read nothing from disk, thanks to the Bloom filters of all
// files (paper §6, "Bloom filters").
func TestAbsentKeysTouchNoDisk(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: 1}, "f:bloom=rowcol", "r:group=rows,bloom=row", "none:group=without,bloom=none")
	counted := e.countReads()
	const files, rows = 4, 500
	for file := range files {
		for i := range rows {
			row := fmt.Sprintf("row%05d-%d", i, file)
			e.mustApply(row, table.Set("f", []byte("here"), 1, randomValue(50)), table.Set("r", []byte("here"), 1, randomValue(50)))
		}
		if file == files-1 {
			break // memtable contents
		}
		if err := e.tabletOfTest().flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look := func(what string, f table.Filter, row func(i int) string, most int64) {
		t.Helper()
		p := (*table.Program)(nil)
		if f != nil {
			p = mustCompile(t, f)
		}
		before := counted.reads.Load()
		for i := range rows {
			err := e.ReadRow(t.Context(), testTable, []byte(row(i)), p, func(key []byte, _ []table.Cell) error {
				t.Errorf("%s: row %q is there", what, key)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := counted.reads.Load() - before; n > most {
			t.Errorf("%s: %d lookups made %d disk reads, want at most %d", what, rows, n, most)
		}
	}
	absent := func(i int) string { return fmt.Sprintf("row%05d-absent", i) }
	present := func(i int) string { return fmt.Sprintf("row%05d-%d", i, i%(files-1)) }
	// A filter has false positives for at most 1 key in 256: of each lookup's 3 files in 2 groups.
	wrong := int64(rows * (files - 1) * 2 / 256 * 3)
	look("rows", nil, absent, wrong)
	look("a column of absent rows", table.ColumnRange{Family: "f", Qualifiers: exactly("here")}, absent, wrong)
	look("an absent column of rows that are there", table.ColumnRange{Family: "f", Qualifiers: exactly("gone")}, present, wrong)
	e.mustApply(strings.Repeat("z", 10), table.Set("none", []byte("q"), 1, []byte("v")))
	if err := e.tabletOfTest().flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := counted.reads.Load()
	look("rows of a group without filter", table.FamilyRegex("none"), absent, rows)
	if counted.reads.Load() == before {
		t.Error("a group without filter was not read: reads are not counted")
	}
}

func exactly(qualifier string) table.ByteRange {
	return table.ByteRange{Start: table.Closed([]byte(qualifier)), End: table.Closed([]byte(qualifier))}
}

func (e *env) tabletOfTest() *Tablet { return e.served.all()[0] }
