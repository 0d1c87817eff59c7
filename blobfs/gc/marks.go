package gc

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/steledb/stele/blobfs/local"
)

// marks is the set of needed blobs within a range of IDs that fits into memory. It stores the first
// 8 bytes of each ID. If two IDs share them, some garbage may be kept.
type marks struct {
	from, to uint64 // inclusive range
	max      int
	all      []uint64 // sorted by settle
}

func markOf(id local.ID) uint64 { return binary.BigEndian.Uint64(id[:]) }

func newMarks(from uint64, max int) *marks { return &marks{from: from, to: math.MaxUint64, max: max} }

// add marks a blob within the range. If the set is full the range is shortened.
func (m *marks) add(id local.ID) {
	x := markOf(id)
	if x < m.from || x > m.to {
		return
	}
	if len(m.all) == m.max {
		m.settle()
		if len(m.all) > m.max/2 {
			m.all = m.all[:m.max/2]
			m.to = m.all[len(m.all)-1]
		}
		if x > m.to {
			return
		}
	}
	m.all = append(m.all, x)
}

// settle sorts the marks and removes duplicates.
func (m *marks) settle() {
	slices.Sort(m.all)
	m.all = slices.Compact(m.all)
}

// covers reports whether a blob is not above the range. Blobs below it were judged in earlier
// passes.
func (m *marks) covers(id local.ID) bool { return markOf(id) <= m.to }

func (m *marks) has(id local.ID) bool {
	_, found := slices.BinarySearch(m.all, markOf(id))
	return found
}
