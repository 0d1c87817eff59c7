package tablet

import (
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/table"
)

// TestRowDeletedWhileFamilyMoves (I1): a row is deleted, and the deletion written out, at some
// moment of the compaction that moves its entries to another, empty group. The row does not
// reappear. Moments are readings of the clock: before the compaction acquires the view, and after.
func TestRowDeletedWhileFamilyMoves(t *testing.T) {
	const moments = 6
	deleted := 0
	for moment := range moments {
		e := newEnv(t, Config{FilesMerge: 20, FilesMax: 40}, "f", "other")
		e.mustApply("row", set("f", "q", 1, "old"), set("other", "q", 1, "old"))
		e.compact(false)
		e.move("f", "new")
		x := e.served.all()[0]
		var looks atomic.Int64 // others read it too
		gone := make(chan struct{})
		look := func() {
			if looks.Add(1) != int64(moment)+1 {
				return
			}
			defer close(gone)
			e.clock.looked.Store(nil)
			e.mustApply("row", table.DeleteRow())
			if err := x.flush(t.Context()); err != nil {
				t.Error(err)
			}
		}
		e.clock.looked.Store(&look)
		e.compact(true)
		e.clock.looked.Store(nil)
		if looks.Load() <= int64(moment) {
			continue
		}
		<-gone
		deleted++
		for _, when := range []string{"then", "after another major compaction"} {
			if got := e.read("row", nil); len(got) != 0 {
				t.Errorf("moment %d, %s: %q", moment, when, got)
			}
			e.compact(true)
		}
	}
	if deleted < 2 {
		t.Errorf("the row was deleted %d times while the compaction ran", deleted)
	}
}
