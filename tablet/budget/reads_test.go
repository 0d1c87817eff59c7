package budget

import "testing"

// TestReservedCache (I13): the block cache and in-memory groups shrink by the memory reserved for
// other purposes.
func TestReservedCache(t *testing.T) {
	const total = 8 << 20
	m := NewReads(total)
	for _, x := range []struct{ reserved, cache, pinned int64 }{
		{0, total, 6 << 20}, {2 << 20, 6 << 20, 5 << 20}, {1 << 20, 7 << 20, 6 << 20}, {5 << 20, 3 << 20, 2 << 20},
		{8 << 20, 1 << 20, 0}, {80 << 20, 1 << 20, 0}, {0, total, 6 << 20},
	} {
		m.SetReserved(x.reserved)
		if budget := m.Cache().Stats().Budget; budget != x.cache || m.pinnedMax() != x.pinned {
			t.Errorf("with %d reserved: %d for the cache, %d for in-memory groups; want %d, %d", x.reserved, budget, m.pinnedMax(), x.cache, x.pinned)
		}
	}
	m.AddOpen(1 << 20)
	m.SetReserved(2 << 20)
	if budget := m.Cache().Stats().Budget; budget != 5<<20 {
		t.Errorf("beside open files, %d are left for the cache", budget)
	}
}
