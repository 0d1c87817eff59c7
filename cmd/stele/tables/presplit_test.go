package tables

import (
	"slices"
	"testing"
)

func TestHexSplitPoints(t *testing.T) {
	for n, want := range map[int][]string{
		0: nil, 1: nil, 2: {"8"}, 4: {"4", "8", "c"}, 3: {"555555", "aaaaaa"},
	} {
		if got := hexSplitPoints(n); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
	for _, n := range []int{16, 100, 256, 5000, 10_000} {
		rows := hexSplitPoints(n)
		if len(rows) != n-1 || !slices.IsSorted(rows) || len(slices.Compact(rows)) != n-1 {
			t.Errorf("%d: %d rows, %v…", n, len(rows), rows[:3])
		}
	}
}
