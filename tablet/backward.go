package tablet

import (
	"bytes"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// backSource is a source of a reversed scan, which goes back row by row and reads each row forward.
type backSource interface {
	source
	// SeekLT moves to the last entry with a key < key; nil is above all keys.
	SeekLT(key []byte) bool
	// SeekWithin moves to the first entry with lower <= key < upper. Until SeekLT, Next need not go
	// beyond upper.
	SeekWithin(lower, upper []byte) bool
}

// SeekWithin implements backSource.
func (m *memSource) SeekWithin(lower, _ []byte) bool { return m.SeekGE(lower) }

// SeekLT implements backSource.
func (b *bounded) SeekLT(key []byte) bool {
	if b.lo != nil && key != nil && bytes.Compare(key, b.lo) <= 0 {
		return false
	}
	if b.hi != nil && (key == nil || bytes.Compare(key, b.hi) > 0) {
		key = b.hi
	}
	return b.source.(backSource).SeekLT(key) && bytes.Compare(b.source.Key(), b.lo) >= 0
}

// SeekWithin implements backSource. The rows of bounds are whole, so a row that was found is within them.
func (b *bounded) SeekWithin(lower, upper []byte) bool {
	return b.source.(backSource).SeekWithin(lower, upper)
}

// backward finds the rows of several sources in descending order of their keys.
//
// It is a binary heap, largest key first, of the sources that have an entry below the last row. Each is
// at its last such entry. The sources that have entries of the last row are in inRow instead.
type backward struct {
	heap  []backHead
	inRow []backSource
}

type backHead struct {
	key []byte
	src backSource
}

// start moves all sources below a key; nil is above all keys. Errors are those of the sources.
func (b *backward) start(sources []source, below []byte) error {
	b.heap, b.inRow = b.heap[:0], b.inRow[:0]
	for _, s := range sources {
		b.inRow = append(b.inRow, s.(backSource))
	}
	return b.retreat(below)
}

// retreat moves the sources of the last row below a key, and returns the error of the first that fails.
func (b *backward) retreat(below []byte) error {
	for i, s := range b.inRow {
		b.inRow[i] = nil
		if s.SeekLT(below) {
			b.push(backHead{s.Key(), s})
		} else if err := s.Err(); err != nil {
			return err
		}
	}
	b.inRow = b.inRow[:0]
	return nil
}

// last returns the largest key of the sources; nil if there is none.
func (b *backward) last() []byte {
	if len(b.heap) == 0 {
		return nil
	}
	return b.heap[0].key
}

// takeRow removes the sources at entries of a row from the heap, and adds them to inRow.
func (b *backward) takeRow(row []byte) {
	for len(b.heap) > 0 && bytes.HasPrefix(b.heap[0].key, row) {
		b.inRow = append(b.inRow, b.heap[0].src)
		last := len(b.heap) - 1
		b.heap[0], b.heap[last] = b.heap[last], backHead{}
		b.heap = b.heap[:last]
		b.down(0)
	}
}

func (b *backward) push(h backHead) {
	b.heap = append(b.heap, h)
	for i := len(b.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if bytes.Compare(b.heap[parent].key, b.heap[i].key) >= 0 {
			return
		}
		b.heap[parent], b.heap[i] = b.heap[i], b.heap[parent]
		i = parent
	}
}

func (b *backward) down(i int) {
	for {
		large := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(b.heap); child++ {
			if bytes.Compare(b.heap[child].key, b.heap[large].key) > 0 {
				large = child
			}
		}
		if large == i {
			return
		}
		b.heap[i], b.heap[large] = b.heap[large], b.heap[i]
		i = large
	}
}

// release drops the references to sources.
func (b *backward) release() {
	clear(b.heap[:cap(b.heap)])
	clear(b.inRow[:cap(b.inRow)])
	b.heap, b.inRow = b.heap[:0], b.inRow[:0]
}

// resetWithin makes m iterate over the entries of sources with lower <= key < upper.
func (m *merge) resetWithin(sources []backSource, lower, upper []byte) {
	m.all, m.heap, m.err = nil, m.heap[:0], nil
	for _, s := range sources {
		m.enter(s, s.SeekWithin(lower, upper))
	}
	m.heapify()
}

// startBack moves the sources below the end of the range, for prev.
func (r *rows) startBack() { r.err = r.back.start(r.sources, r.end) }

// prev moves to the previous row that has a cell and returns its key, like next. When it has paused or
// lacks memory, the rows below unread remain.
func (r *rows) prev() ([]byte, bool) {
	for r.err == nil {
		if len(r.key) > 0 {
			if r.err = r.back.retreat(r.key[:r.rowEnd]); r.err != nil {
				break
			}
		}
		key := r.back.last()
		if key == nil || bytes.Compare(key, r.start) < 0 {
			return nil, false
		}
		n := ikey.RowLen(key)
		if n < 0 {
			r.err = ikey.ErrBadKey
			break
		}
		r.key, r.rowEnd, r.inRow = append(r.key[:0], key[:n]...), n, true
		r.cells, r.quals, r.bytes = r.cells[:0], r.quals[:0], 0
		r.back.takeRow(r.key)
		if r.most != nil && (r.most.begun && r.selection.eval.Tired() || r.most.enough()) {
			r.paused = true
			return nil, false
		}
		if r.worked(rowEntries + seekEntries/4*len(r.back.inRow)); r.err != nil {
			break
		}
		row := ikey.RowKey(r.key)
		wanted, err := r.selection.row(row)
		if err != nil {
			r.err = err
			break
		}
		if wanted {
			r.rowLimit = ikey.AppendAfter(r.rowLimit[:0], r.key)
			r.merge.resetWithin(r.back.inRow, r.key, r.rowLimit)
			r.rowFull = r.cleared.Of(row)
			r.readRow()
			if r.err == nil {
				r.err = r.merge.err
			}
			if r.err != nil {
				break
			}
		}
		r.inRow = false
		if r.key = r.key[:n]; wanted && len(r.cells) > 0 {
			return row, true
		}
	}
	return nil, false
}

// unread returns the end of the rows that prev has not finished: the key after the current row, or that of
// the last one. It returns nil if there was none.
func (r *rows) unread() []byte {
	if len(r.key) == 0 {
		return nil
	}
	row := bytes.Clone(ikey.RowKey(r.key[:r.rowEnd]))
	if r.inRow {
		return append(row, 0)
	}
	return row
}

// scanBack is scan for a reversed range. The key that it returns is the end of the rows that remain.
func (r *reader) scanBack(t *Tablet, v *view, rg Range, f *table.Program, most *ScanBounds, emit Emit) ([]byte, error) {
	rs := &r.rows
	r.setBounds(t, rg)
	rs.start = r.row
	rs.sourcesOf(v, nil, sstable.IterOptions{Gate: rs})
	rs.startBack()
	for {
		key, ok := rs.prev()
		if rs.paused {
			return rs.unread(), nil
		}
		if lacksMemory(rs.err) {
			if rs.inRow {
				most.again()
			}
			return rs.unread(), rs.err
		}
		if !ok {
			return nil, rs.err
		}
		switch err := r.emit(f, key, emit); err {
		case nil:
			rs.emitted()
		case ErrStop:
			return append(bytes.Clone(key), 0), nil
		case ErrLast:
			return bytes.Clone(key), nil
		default:
			return nil, err
		}
	}
}
