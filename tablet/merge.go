package tablet

import (
	"bytes"

	"github.com/steledb/stele/tablet/sstable"
)

// source is a sorted run of entries: a memtable or an SSTable.
type source interface {
	// First, SeekGE and Next report whether they found an entry.
	First() bool
	SeekGE(key []byte) bool
	Next() bool
	Key() []byte
	Value() []byte
	Err() error
}

// merge iterates over the entries of several sources in key order. Keys are unique across sources,
// since each ends in its sequence number.
//
// It is a binary heap, smallest key first, of the sources that have an entry. With one source left,
// the usual case after Bloom filters, the heap costs nothing.
type merge struct {
	all  []source
	heap []head
	err  error
}

type head struct {
	key []byte
	src source
}

func (m *merge) reset(sources []source) {
	m.all, m.heap, m.err = sources, m.heap[:0], nil
}

func (m *merge) first() {
	m.heap = m.heap[:0]
	for _, s := range m.all {
		m.enter(s, s.First())
	}
	m.heapify()
}

func (m *merge) seekGE(key []byte) {
	m.heap = m.heap[:0]
	for _, s := range m.all {
		m.enter(s, s.SeekGE(key))
	}
	m.heapify()
}

// advanceTo is seekGE for a key at or above the current one. It does not move sources that are
// already there.
func (m *merge) advanceTo(key []byte) {
	kept := m.heap[:0]
	for _, h := range m.heap {
		if bytes.Compare(h.key, key) < 0 {
			if !h.src.SeekGE(key) {
				m.ended(h.src)
				continue
			}
			h.key = h.src.Key()
		}
		kept = append(kept, h)
	}
	clear(m.heap[len(kept):])
	m.heap = kept
	m.heapify()
}

func (m *merge) valid() bool { return len(m.heap) > 0 && m.err == nil }
func (m *merge) key() []byte { return m.heap[0].key }

// value returns the value of the current entry. If it cannot be read, err is set and the merge is
// no longer valid.
func (m *merge) value() []byte {
	src := m.heap[0].src
	v := src.Value()
	if len(v) == 0 {
		m.ended(src)
	}
	return v
}

// cached reports whether the current entry, if any, is in the block cache.
func (m *merge) cached() bool { return len(m.heap) > 0 && isCached(m.heap[0].src) }

func isCached(s source) bool {
	switch s := s.(type) {
	case *sstable.Iter:
		return s.Cached()
	case *bounded:
		return isCached(s.source)
	}
	return false
}

func (m *merge) next() {
	h := &m.heap[0]
	if !h.src.Next() {
		m.ended(h.src)
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap[last] = head{}
		m.heap = m.heap[:last]
		m.down(0)
		return
	}
	h.key = h.src.Key()
	m.down(0)
}

// ended records a source's error, if that is why it has no entry.
func (m *merge) ended(s source) {
	if err := s.Err(); err != nil && m.err == nil {
		m.err = err
	}
}

func (m *merge) enter(s source, ok bool) {
	if !ok {
		m.ended(s)
		return
	}
	m.heap = append(m.heap, head{key: s.Key(), src: s})
}

func (m *merge) heapify() {
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
}

func (m *merge) down(i int) {
	for {
		small := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.heap); child++ {
			if bytes.Compare(m.heap[child].key, m.heap[small].key) < 0 {
				small = child
			}
		}
		if small == i {
			return
		}
		m.heap[i], m.heap[small] = m.heap[small], m.heap[i]
		i = small
	}
}
