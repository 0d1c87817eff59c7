package blobfs

import (
	"encoding/binary"
	"math"
	"slices"
)

// marks are the blobs that something needs, of a range of IDs that is as large as fits into memory. A blob is
// remembered by the first 8 bytes of its ID: that two have the same only keeps garbage.
type marks struct {
	from, to uint64 // the range, both ends within
	max      int
	all      []uint64 // sorted once settled
}

func markOf(id ID) uint64 { return binary.BigEndian.Uint64(id[:]) }

func newMarks(from uint64, max int) *marks { return &marks{from: from, to: math.MaxUint64, max: max} }

// add marks a blob, if it is within the range. When there are too many the range becomes shorter.
func (m *marks) add(id ID) {
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

// settle sorts the marks.
func (m *marks) settle() {
	slices.Sort(m.all)
	m.all = slices.Compact(m.all)
}

// covers tells whether the marks say something about a blob: all below the range were judged before.
func (m *marks) covers(id ID) bool { return markOf(id) <= m.to }

func (m *marks) has(id ID) bool {
	_, found := slices.BinarySearch(m.all, markOf(id))
	return found
}
