package commitlog

import (
	"sync"

	"github.com/steledb/stele/internal/invariant"
)

// markBytes is the distance between marks, in bytes of log. Log space is released in extents, which
// have marks at their ends and usually 64 MiB, so finer marks gain nothing.
const markBytes = 1 << 20

// mark records that all records below pos have sequence numbers below next.
type mark struct {
	pos  int64
	next uint64
}

// marks is an approximate map from sequence numbers to positions of the log blob.
type marks struct {
	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		list []mark // ascending in both fields
		last mark   // the latest, perhaps not in list
		// extent is the extent that was appended to at last.
		extent uint64
		kept   int64 // the largest result of covered, which never decreases
	}
}

// add adds a mark at the end of a log that appends to the given extent.
func (m *marks) add(k mark, extent uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	invariant.Check(k.next > m.mu.last.next, "the log ends before entry %d after entry %d", int64(k.next), int64(m.mu.last.next))
	invariant.Check(k.pos > m.mu.last.pos, "the log ends at %d after %d", k.pos, m.mu.last.pos)
	// The extent before ends at the last mark, or at this one if the log moved on after the append.
	moved := m.mu.last.pos > 0 && extent != m.mu.extent
	if n := len(m.mu.list); moved && (n == 0 || m.mu.list[n-1] != m.mu.last) {
		m.mu.list = append(m.mu.list, m.mu.last)
	}
	m.mu.last, m.mu.extent = k, extent
	if n := len(m.mu.list); n == 0 || moved || k.pos-m.mu.list[n-1].pos >= markBytes {
		m.mu.list = append(m.mu.list, k)
	}
}

// covered returns the largest known position with all records below redo, and discards the marks
// before it. For a lower redo than before it returns the earlier result.
func (m *marks) covered(redo uint64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := 0
	for i < len(m.mu.list) && m.mu.list[i].next <= redo {
		m.mu.kept = max(m.mu.kept, m.mu.list[i].pos)
		i++
	}
	m.mu.list = append(m.mu.list[:0], m.mu.list[i:]...)
	if m.mu.last.next <= redo {
		m.mu.kept = max(m.mu.kept, m.mu.last.pos)
	}
	return m.mu.kept
}

// end returns the position after the last record.
func (m *marks) end() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.last.pos
}
