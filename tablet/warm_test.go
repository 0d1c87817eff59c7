package tablet

import (
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
)

// Cached data is still cached after a compaction, and other data is not.
func TestCompactionsLeaveCacheWarm(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: 64 << 20}, "f:", "g:group=other")
	counted := e.countReads()
	const rows = 4000
	row := func(i int) string { return fmt.Sprintf("row%05d", i) }
	write := func(from, step int) {
		for i := from; i < rows; i += step {
			e.mustApply(row(i), table.Set("f", []byte("q"), 1, randomValue(1000)), table.Set("g", []byte("q"), 1, randomValue(1000)))
		}
		if err := e.tabletOfTest().flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read := func(from, to int) int64 {
		before := counted.reads.Load()
		for i := from; i < to; i++ {
			if got := e.read(row(i), nil); len(got) != 2 {
				t.Fatalf("%s: %q", row(i), got)
			}
		}
		return counted.reads.Load() - before
	}
	write(0, 2)
	write(1, 2)
	if read(1000, 2000) < 20 {
		t.Fatal("the cache is not what is filled")
	}
	for _, step := range []string{"major", "again", "regroup"} {
		if step == "regroup" {
			e.move("g", table.DefaultGroup)
		}
		e.mustCompact(t, true)
		if n := read(1000, 2000); n > 4 { // the blocks at the ends have other rows too
			t.Errorf("%s: %d reads of what was in memory", step, n)
		}
	}
	if n := read(2100, 3100); n < 20 {
		t.Errorf("%d reads of what was not", n)
	}
}
