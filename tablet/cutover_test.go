package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
)

// cutoverEnv is a server with a fully cached table in blocks of 8 KiB; two such tables do not fit.
func cutoverEnv(t *testing.T, rows int) (e *env, row func(i int) string) {
	t.Helper()
	e = newEnv(t, Config{CacheBytes: int64(rows) * 1900}, "f:block=8KiB") // a quarter is for rows
	e.countReads()
	row = func(i int) string { return fmt.Sprintf("row%05d", i) }
	for step := range 2 {
		for i := step; i < rows; i += 2 {
			e.mustApply(row(i), table.Set("f", []byte("q"), 1, randomValue(1000)))
		}
		if err := e.tabletOfTest().flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e.mustCompact(t, true)
	for range 3 {
		for i := range rows {
			if got := e.read(row(i), nil); len(got) != 1 {
				t.Fatalf("%s: %q", row(i), got)
			}
		}
	}
	return e, row
}

// A table whose blocks fill the cache is still cached after a compaction, though old and new file
// do not fit together.
func TestCutover(t *testing.T) {
	const rows = 6000
	e, row := cutoverEnv(t, rows)
	counted := e.Server.cfg.Blobs.(*countedBlobs)
	read := func() int64 {
		before := counted.reads.Load()
		for i := range rows {
			if got := e.read(row(i), nil); len(got) != 1 {
				t.Fatalf("%s: %q", row(i), got)
			}
		}
		return counted.reads.Load() - before
	}
	const blocks = rows / 8
	if n := read(); n > blocks/10 {
		t.Fatalf("%d disk reads for %d blocks that should be cached", n, blocks)
	}
	for range 3 {
		e.mustCompact(t, true)
		if n := read(); n > blocks/4 {
			t.Errorf("%d disk reads for %d blocks after a compaction", n, blocks)
		}
	}
	if s := e.Stats().Cache; s.Bytes > s.Budget {
		t.Errorf("%d bytes in a cache of %d", s.Bytes, s.Budget)
	}
}

// A tablet that shares a file since a split evicts no blocks that its sibling reads.
func TestCutoverLeavesOtherRows(t *testing.T) {
	const rows = 6000
	e, row := cutoverEnv(t, rows)
	counted := e.Server.cfg.Blobs.(*countedBlobs)
	if _, _, err := e.Split(t.Context(), e.tabletOfTest().ref(), []byte(row(rows/2))); err != nil {
		t.Fatal(err)
	}
	upper := func() int64 {
		before := counted.reads.Load()
		for i := rows/2 + 1; i < rows; i++ {
			if got := e.read(row(i), nil); len(got) != 1 {
				t.Fatalf("%s: %q", row(i), got)
			}
		}
		return counted.reads.Load() - before
	}
	if n := upper(); n > rows/2/8/10 {
		t.Fatalf("%d disk reads of blocks that should be cached", n)
	}
	if err := e.CompactTablet(t.Context(), e.served.all()[0].ref(), true); err != nil {
		t.Fatal(err)
	}
	if n := upper(); n > rows/2/8/3 {
		t.Errorf("%d reads of %d blocks after the other tablet was compacted", n, rows/2/8)
	}
}

// A table that is dropped during a cutover leaves no blob.
func TestCutoverOfDroppedTable(t *testing.T) {
	e, _ := cutoverEnv(t, 3000)
	var once sync.Once
	tab := e.tabletOfTest()
	e.Server.cfg.Blobs.(*countedBlobs).hook(func() {
		tab.meta.mu.Lock()
		named := tab.meta.current.Groups[0].Files[0].Handle.ID
		tab.meta.mu.Unlock()
		v, _, err := tab.views.acquire()
		if err != nil {
			return
		}
		defer v.release()
		if v.filesOf(table.DefaultGroup)[0].meta.Handle.ID == named {
			return // the cutover has not begun
		}
		once.Do(func() {
			if err := e.DropTable(testTable); err != nil {
				t.Error(err)
			}
		})
	})
	if err := e.Compact(t.Context(), testTable, true); err != nil && !errors.Is(err, api.ErrNoTable) {
		t.Fatal(err)
	}
	if _, err := e.Server.served.tabletsOf(testTable); !errors.Is(err, api.ErrNoTable) {
		t.Fatalf("the table was not dropped: %v", err)
	}
	e.deletions.Run(t.Context())
	if left := e.store.Blobs(); len(left) > 0 {
		t.Errorf("%d blobs are left", len(left))
	}
}

// A server that loses power during a cutover restarts with all rows (I1, I6).
func TestPowerLossInCutover(t *testing.T) {
	const rows = 3000
	e, row := cutoverEnv(t, rows)
	tab := e.tabletOfTest()
	var disk *vfs.Mem
	var meta *memMetadata
	e.Server.cfg.Blobs.(*countedBlobs).hook(func() {
		if disk != nil || !inCutover(t, tab) {
			return
		}
		e.meta.mu.Lock()
		defer e.meta.mu.Unlock()
		meta, disk = e.meta.cloneLocked(), e.fs.Crash(rand.New(rand.NewPCG(1, 1)))
	})
	e.mustCompact(t, true)
	if disk == nil {
		t.Fatal("no cutover began")
	}
	e.close()
	e.fs, e.meta = disk, meta
	e.open()
	for i := range rows {
		if got := e.read(row(i), nil); len(got) != 1 {
			t.Fatalf("%s: %q", row(i), got)
		}
	}
}

// inCutover reports whether a tablet is read from parts of files.
func inCutover(t *testing.T, tab *Tablet) bool {
	t.Helper()
	v, _, err := tab.views.acquire()
	if err != nil {
		return false
	}
	defer v.release()
	return slices.ContainsFunc(v.filesOf(table.DefaultGroup), func(f *file) bool { return f.whole != nil })
}

// At every moment of a cutover each row is in exactly one of the files (T5), also where older files
// have no rows, and where the tablet has only a part of them.
func TestCutoverStepByStep(t *testing.T) {
	const rows = 6000
	e, row := cutoverEnv(t, rows)
	if _, _, err := e.Split(t.Context(), e.tabletOfTest().ref(), []byte(row(rows/10))); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < rows; i += 3 {
		e.mustApply(row(i), table.Set("f", []byte("q"), 2, randomValue(300)))
	}
	upper := e.served.all()[1]
	if err := upper.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	steps, parted := 0, 0
	e.Server.cfg.Blobs.(*countedBlobs).hook(func() {
		if inCutover(t, upper) {
			parted++
		}
		if steps++; steps%10 != 0 {
			return
		}
		for i := range rows {
			want := 1
			if i%3 == 0 {
				want = 2
			}
			if got := e.read(row(i), nil); len(got) != want {
				t.Errorf("%d steps: %s: %q", steps, row(i), got)
			}
		}
		seen := 0
		_, err := e.Scan(t.Context(), testTable, Range{}, nil, func(key []byte, _ []table.Cell) error {
			if string(key) != row(seen) {
				return fmt.Errorf("row %q in the place of %q", key, row(seen))
			}
			seen++
			return nil
		})
		if err != nil || seen != rows {
			t.Errorf("%d steps: %d rows, %v", steps, seen, err)
		}
	})
	e.mustCompact(t, true)
	if parted < 100 {
		t.Errorf("%d of %d disk reads during a cutover", parted, steps)
	}
}

// Reads during a cutover see each row once, with all acknowledged writes, also while a tablet is
// split or dropped (I3, T5).
func TestCutoverBesideReadsAndWrites(t *testing.T) {
	const rows = 3000
	e, row := cutoverEnv(t, rows)
	ctx, stop := context.WithCancel(t.Context())
	one := mustCompile(t, table.CellsPerColumnLimit(1))
	var group sync.WaitGroup
	var written [8]atomic.Int64 // last timestamp of the rows of each writer
	for w := range written {
		written[w].Store(1)
		group.Go(func() {
			for ts := int64(2); ctx.Err() == nil; ts++ {
				for i := w; i < rows && ctx.Err() == nil; i += 8 * 25 {
					if _, err := e.apply(row(i), table.Set("f", []byte("q"), ts, []byte(fmt.Sprint(ts)))); err != nil {
						t.Errorf("write %s: %v", row(i), err)
						return
					}
				}
				written[w].Store(ts - 1)
			}
		})
	}
	for r := range 3 {
		group.Go(func() {
			for n := r; ctx.Err() == nil; n += 7 {
				i := n * 31 % rows
				least := written[i%8].Load()
				if i/8%25 != 0 {
					least = 1 // not written
				}
				latest := int64(0)
				err := e.ReadRow(t.Context(), testTable, []byte(row(i)), one, func(_ []byte, cells []table.Cell) error {
					latest = cells[0].Timestamp
					return nil
				})
				if err != nil || latest < least {
					t.Errorf("%s: timestamp %d, %v, want %d at least", row(i), latest, err, least)
					return
				}
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			seen := 0
			_, err := e.Scan(ctx, testTable, Range{}, nil, func(key []byte, cells []table.Cell) error {
				if string(key) != row(seen) {
					return fmt.Errorf("row %q in the place of %q", key, row(seen))
				}
				for i := 1; i < len(cells); i++ {
					if cells[i].Timestamp >= cells[i-1].Timestamp {
						return fmt.Errorf("row %q: timestamp %d follows %d", key, cells[i].Timestamp, cells[i-1].Timestamp)
					}
				}
				seen++
				return nil
			})
			if ctx.Err() == nil && (err != nil || seen != rows) {
				t.Errorf("scan: %d rows, %v", seen, err)
				return
			}
		}
	})
	for i := range 12 {
		if err := e.Compact(t.Context(), testTable, true); err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			group.Go(func() {
				if _, _, err := e.Split(t.Context(), e.tabletOfTest().ref(), []byte(row(rows/3))); err != nil {
					t.Errorf("split: %v", err)
				}
			})
		}
	}
	stop()
	group.Wait()
	if err := e.DropTable(testTable); err != nil {
		t.Fatal(err)
	}
	e.deletions.Run(t.Context())
	if n := e.Stats().Memory.Open; n != 0 {
		t.Errorf("%d bytes of unreferenced files", n)
	}
}
