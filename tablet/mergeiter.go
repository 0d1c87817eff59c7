package tablet

import (
	"bytes"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/memtable"
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
	case *numbered:
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

// The filter name of an SSTable identifies the key prefixes in its Bloom filter: row parts, or also
// row parts with family and column parts.
const (
	filterNameRow       = "row"
	filterNameRowColumn = "row+column"
)

// rowPrefixes and rowColumnPrefixes append the lengths of the key prefixes that go into the Bloom
// filter.
func rowPrefixes(key []byte, dst []int) []int {
	if n := ikey.RowLen(key); n > 0 {
		dst = append(dst, n)
	}
	return dst
}

func rowColumnPrefixes(key []byte, dst []int) []int {
	p, err := ikey.Split(key)
	if err != nil {
		return dst
	}
	dst = append(dst, p.Row)
	if p.Column > p.Family {
		dst = append(dst, p.Column)
	}
	return dst
}

// FilterPrefixes returns the function for the key prefixes in a Bloom filter of that name, or nil
// if the name is unknown. See sstable.VerifyOptions.
func FilterPrefixes(name string) func(key []byte, dst []int) []int {
	switch name {
	case filterNameRow:
		return rowPrefixes
	case filterNameRowColumn:
		return rowColumnPrefixes
	}
	return nil
}

// memSource is a memtable as a source.
type memSource struct{ memtable.Iter }

func (memSource) Err() error { return nil }

// bounded limits a source to keys at or above lo and below hi; nil means no bound.
type bounded struct {
	source
	lo, hi []byte
}

// boundedSource limits src to the rows start < row <= end.
func boundedSource(src source, start, end []byte) source {
	if len(start) == 0 && len(end) == 0 {
		return src
	}
	b := &bounded{source: src}
	b.lo, b.hi = rowBounds(start, end)
	return b
}

func (b *bounded) First() bool {
	if b.lo == nil {
		return b.in(b.source.First())
	}
	return b.in(b.source.SeekGE(b.lo))
}

func (b *bounded) SeekGE(key []byte) bool {
	if bytes.Compare(key, b.lo) < 0 {
		key = b.lo
	}
	return b.in(b.source.SeekGE(key))
}

func (b *bounded) Next() bool { return b.in(b.source.Next()) }

func (b *bounded) in(ok bool) bool {
	return ok && (b.hi == nil || bytes.Compare(b.source.Key(), b.hi) < 0)
}

// numbered is a source of a bulk file, with the file's sequence number in its keys. The stored keys have 0, which sorts behind every
// other number of the same column and timestamp.
type numbered struct {
	source
	seq uint64
	key []byte
	bad bool // a key is too short to have a number
}

// numbered returns src, a source of the file's entries, with their sequence numbers.
func (f *file) numbered(src source) source {
	if !f.opened.bulk {
		return src
	}
	return &numbered{source: src, seq: f.meta.MinSeq}
}

// Key implements source.
func (n *numbered) Key() []byte { return n.key }

// First implements source.
func (n *numbered) First() bool { return n.settle(n.source.First()) }

// Next implements source.
func (n *numbered) Next() bool { return n.settle(n.source.Next()) }

// SeekGE implements source. It passes over the entry of the column and timestamp of key if the file's number is above that in key.
func (n *numbered) SeekGE(key []byte) bool {
	ok := n.settle(n.source.SeekGE(key))
	for ok && bytes.Compare(n.key, key) < 0 {
		ok = n.Next()
	}
	return ok
}

// SeekLT implements backSource. key is the row part of a key, or nil.
func (n *numbered) SeekLT(key []byte) bool { return n.settle(n.source.(backSource).SeekLT(key)) }

// SeekWithin implements backSource. lower and upper are row parts of keys.
func (n *numbered) SeekWithin(lower, upper []byte) bool {
	return n.settle(n.source.(backSource).SeekWithin(lower, upper))
}

// Err implements source.
func (n *numbered) Err() error {
	if n.bad {
		return ikey.ErrBadKey
	}
	return n.source.Err()
}

// settle sets the key of the current entry, if there is one.
func (n *numbered) settle(ok bool) bool {
	if ok {
		n.key = append(n.key[:0], n.source.Key()...)
		n.bad = !ikey.SetSeq(n.key, n.seq)
	}
	return ok && !n.bad
}

// newer limits a source to entries with sequence numbers above than.
type newer struct {
	source
	than uint64
	err  error
}

func (n *newer) First() bool            { return n.settle(n.source.First()) }
func (n *newer) SeekGE(key []byte) bool { return n.settle(n.source.SeekGE(key)) }
func (n *newer) Next() bool             { return n.settle(n.source.Next()) }

func (n *newer) settle(ok bool) bool {
	for ; ok; ok = n.source.Next() {
		key := n.source.Key()
		if len(key) < ikey.MinLen {
			n.err = ikey.ErrBadKey
			return false
		}
		if ikey.Seq(key) > n.than || planted.On(planted.OperandTwice) && isOperand(key) {
			return true
		}
	}
	return false
}

// isOperand reports whether a key is that of an operand.
func isOperand(key []byte) bool {
	p, err := ikey.Split(key)
	return err == nil && p.Kind == ikey.KindOperand
}

func (n *newer) Err() error {
	if n.err != nil {
		return n.err
	}
	return n.source.Err()
}

// distinct merges sources and returns duplicate entries once. Sorted runs have some: a piece of a log may be sorted twice.
type distinct struct {
	merge merge
	last  []byte
}

func distinctOf(sources []source) *distinct {
	d := &distinct{}
	d.merge.reset(sources)
	return d
}

func (d *distinct) First() bool { d.merge.first(); return d.merge.valid() }

func (d *distinct) SeekGE(key []byte) bool { d.merge.seekGE(key); return d.merge.valid() }

func (d *distinct) Next() bool {
	d.last = append(d.last[:0], d.merge.key()...)
	for d.merge.next(); d.merge.valid() && bytes.Equal(d.merge.key(), d.last); d.merge.next() {
	}
	return d.merge.valid()
}

func (d *distinct) Key() []byte   { return d.merge.key() }
func (d *distinct) Value() []byte { return d.merge.value() }
func (d *distinct) Err() error    { return d.merge.err }

// point is the row, or the column of a row, that a point read looks up, as key parts for the Bloom
// filters.
type point struct {
	key    []byte // of the row
	row    []byte // row part
	column []byte // row, family and column part; nil for the whole row
}

// mayHold reports whether f may hold an entry that a read of p must see.
func (p *point) mayHold(f *file) bool {
	if f.inner && !f.meta.holds(p.key) {
		return false
	}
	if !f.table.MayContain(p.row) {
		return false
	}
	// Deletions of rows and families are not filed under columns: a file that has any must be read.
	if p.column != nil && (f.meta.RowDeletions == 0 || planted.On(planted.FilterHidesDeletions)) && f.columnFilter {
		return f.table.MayContain(p.column)
	}
	return true
}

// sourcesOf appends the sources of v that a read must merge. p is nil for a scan.
func (r *rows) sourcesOf(v *view, p *point, opts sstable.IterOptions) {
	r.addMem(v.active)
	for _, m := range v.frozen {
		r.addMem(m)
	}
	opts.Timed = r.trace != nil
	for i := range v.groups {
		g := &v.groups[i]
		if !g.holds(&r.selection, r.schema) {
			continue
		}
		inMemory := r.schema.keepsInMemory(g.name)
		for _, f := range g.files {
			if p != nil && !p.mayHold(f) {
				r.work.skipped++
				continue
			}
			switch {
			case inMemory:
				f.opened.files.pins.request(f)
			case p != nil:
				if e, ok := f.table.Entries(p.row); ok {
					r.addEntries(f, e)
					r.work.cached++
					continue
				}
			}
			it := f.table.NewIter(opts)
			r.iters = append(r.iters, it)
			r.work.files++
			if p == nil && f.inner {
				r.sources = append(r.sources, boundedSource(f.numbered(it), f.meta.Start, f.meta.End))
				continue
			}
			r.sources = append(r.sources, f.numbered(it))
		}
	}
}

func (r *rows) addMem(m *mem) {
	if m.Len() == 0 {
		return
	}
	if len(r.mems) == cap(r.mems) {
		r.mems = append(r.mems, &memSource{})
	} else if r.mems = r.mems[:len(r.mems)+1]; r.mems[len(r.mems)-1] == nil {
		r.mems[len(r.mems)-1] = &memSource{}
	}
	src := r.mems[len(r.mems)-1]
	src.Iter = m.Iter()
	r.sources = append(r.sources, src)
}

// addEntries adds the entries of a row in a file that the scan cache holds.
func (r *rows) addEntries(f *file, e sstable.Entries) {
	if e.Empty() {
		return
	}
	if len(r.cached) == cap(r.cached) {
		r.cached = append(r.cached, &sstable.EntriesIter{})
	} else if r.cached = r.cached[:len(r.cached)+1]; r.cached[len(r.cached)-1] == nil {
		r.cached[len(r.cached)-1] = &sstable.EntriesIter{}
	}
	it := r.cached[len(r.cached)-1]
	it.Reset(e)
	r.sources = append(r.sources, f.numbered(it))
}

// keepEntries offers the entries of the row to the scan cache. It moves the sources.
func (r *rows) keepEntries(row []byte) {
	for _, it := range r.iters {
		it.Keep(row)
	}
}

// closeSources closes the iterators and drops the references to their data.
func (r *rows) closeSources() {
	for i, it := range r.iters {
		if r.trace != nil {
			r.work.add(it.TakeReads())
		}
		it.Close()
		r.iters[i] = nil
	}
	for _, m := range r.mems {
		m.Iter = memtable.Iter{}
	}
	r.releaseMemory()
	for _, c := range r.cached {
		c.Reset(sstable.Entries{})
	}
	clear(r.sources)
	clear(r.merge.heap[:cap(r.merge.heap)])
	r.iters, r.mems, r.cached, r.sources = r.iters[:0], r.mems[:0], r.cached[:0], r.sources[:0]
	r.merge.reset(nil)
	r.back.release()
}
