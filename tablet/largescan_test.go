package tablet

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/steledb/stele/table"
)

// TestScanOfLargeCellsHoldsFew (I13): a scan of many files that all have a large cell next holds
// few of these at a time, and returns all.
func TestScanOfLargeCellsHoldsFew(t *testing.T) {
	const cell, files = 2 << 20, 16
	e := newEnv(t, Config{CacheBytes: 1, FilesMerge: files + 2, LargeReadBytes: 2 * cell}, "f:compression=none")
	var want [][]byte
	for i := range files {
		want = append(want, randomValue(cell+i))
		e.mustApply(fmt.Sprintf("row%03d", i), table.Set("f", nil, 1, want[i]))
		if err := e.Compact(t.Context(), testTable, false); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, rows := heap(), int64(0), 0
	_, err := e.Scan(t.Context(), testTable, Range{}, nil, func(key []byte, cells []table.Cell) error {
		if !bytes.Equal(cells[0].Value, want[rows]) {
			t.Fatalf("%s is not what was written", key)
		}
		rows++
		most = max(most, heap()-before)
		return nil
	})
	if err != nil || rows != files {
		t.Fatalf("%d rows, %v", rows, err)
	}
	if most > 6*cell {
		t.Errorf("the scan took %d MiB, of cells of %d MiB", most>>20, cell>>20)
	}
}
