package tablet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// Rows that are read repeatedly are served from memory though their blocks do not fit, and
// concurrent writes and compactions are visible at once.
func TestHotRows(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: 1 << 20}, "f:") // 14 blocks of 64 KiB
	counted := e.countReads()
	const rows, hot = 6000, 80
	for i := range rows {
		e.mustApply(fmt.Sprintf("row%05d", i), table.Set("f", []byte("q"), 1, randomValue(1000)))
	}
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	row := func(i int) string { return fmt.Sprintf("row%05d", i*(rows/hot)) }
	read := func() int64 {
		before := counted.reads.Load()
		for i := range hot {
			if got := e.read(row(i), nil); len(got) != 1 {
				t.Fatalf("%s: %q", row(i), got)
			}
		}
		return counted.reads.Load() - before
	}
	for range 60 {
		read()
		time.Sleep(time.Millisecond) // the cache records its hits late, and not all
	}
	if n := read(); n > hot/2 {
		t.Errorf("%d disk reads for %d hot rows", n, hot)
	}
	s := e.Stats().Cache
	if s.RowHits < hot*20 || s.RowMisses == 0 {
		t.Errorf("%+v", s)
	}
	var want []string
	for _, step := range []string{"write", "minor compaction", "major compaction", "deletion", "minor compaction", "major compaction"} {
		switch step {
		case "write":
			e.mustApply(row(3), table.Set("f", []byte("q"), 2, []byte("new")))
			want = []string{"f:q@2=new"}
		case "deletion":
			e.mustApply(row(3), table.DeleteRow())
			e.mustApply(row(3), table.Set("f", []byte("p"), 7, []byte("anew")))
			want = []string{"f:p@7=anew"}
		case "minor compaction":
			if err := e.tabletOfTest().flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		case "major compaction":
			if err := e.Compact(t.Context(), testTable, true); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 { // the third reads from the scan cache
			if got := e.read(row(3), table.CellsPerColumnLimit(1)); !slices.Equal(got, want) {
				t.Fatalf("after a %s: %q, want %q", step, got, want)
			}
		}
	}
}
