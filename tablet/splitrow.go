package tablet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/steledb/stele/tablet/heat"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// ErrNoSplitRow means that a tablet has no row at which both halves would be non-empty: it has at
// most one row.
var ErrNoSplitRow = errors.New("tablet has no row to split at")

// splitSamples is the approximate number of samples of each file: the halves are even to within
// 1/splitSamples of the bytes.
const splitSamples = 256

// splitTries bounds the rows that are tried, best first. More than a few fail only if the tablet is
// mostly one row.
const splitTries = 64

// sample is a row and the approximate bytes of a source since the previous sample.
type sample struct {
	row   []byte
	bytes int64
}

// splitRow returns the row that divides the tablet's bytes most evenly and leaves neither half
// empty, as estimated from the indexes of its files and its memtables. The error is ErrNoSplitRow,
// errGone, or of reading files.
func (t *Tablet) splitRow(ctx context.Context) ([]byte, error) {
	v, _, err := t.views.acquire()
	if err != nil {
		return nil, err
	}
	defer v.release()
	samples, err := t.samples(v)
	if err != nil {
		return nil, err
	}
	rows := t.newRowCursor(v)
	defer rows.close()
	first := rows.from(rows.lo)
	slices.SortFunc(samples, func(a, b sample) int { return bytes.Compare(a.row, b.row) })
	total := int64(0)
	for _, s := range samples {
		total += s.bytes
	}
	type candidate struct {
		row []byte
		off int64 // distance from the middle
	}
	var candidates []candidate
	below := int64(0)
	for _, s := range samples {
		below += s.bytes
		off := below - total/2
		candidates = append(candidates, candidate{s.row, max(off, -off)})
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.off, b.off) })
	if first == nil {
		candidates = nil
	}
	for i := range candidates[:min(len(candidates), splitTries)] {
		// An index has shortened keys, so take the first existing row from there on. METADATA's
		// tablets should end at one of its rows, for clients that look for the first row after a
		// key.
		row := candidates[i].row
		if there := rows.from(ikey.AppendRow(nil, row)); there != nil {
			row = there
		}
		for _, at := range [][]byte{rows.after(row), rows.below(row)} {
			if string(at) >= string(first) && t.server.splits.checkEnd(at) == nil && t.holds(at) && rows.parts(at) {
				return bytes.Clone(at), nil
			}
		}
	}
	if first != nil {
		first = rows.after(first)
	}
	switch {
	case rows.merge.err != nil:
		return nil, rows.merge.err
	case first != nil && t.server.splits.checkEnd(first) == nil && rows.parts(first): // as uneven as possible, but split
		return first, nil
	}
	return nil, ErrNoSplitRow
}

// samples returns rows from all over the tablet.
func (t *Tablet) samples(v *view) ([]sample, error) {
	all, err := t.fileSamples(v)
	return append(all, t.memSamples(v)...), err
}

// fileSamples returns rows of the tablet's files.
func (t *Tablet) fileSamples(v *view) (all []sample, err error) {
	for _, g := range v.groups {
		for _, f := range g.files {
			m := f.meta
			if !m.within(t.start, t.end) {
				continue
			}
			lo, hi := rowBounds(m.Start, m.End)
			err = f.table.Samples(lo, hi, f.bytes/splitSamples+1, func(key []byte, n int64) {
				all = append(all, sample{ikey.RowPrefix(key), n})
			})
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// memSamples returns rows of the tablet's memtables.
func (t *Tablet) memSamples(v *view) (all []sample) {
	for _, m := range append(slices.Clone(v.frozen), v.active) {
		src := boundedSource(&memSource{m.Iter()}, t.start, t.end)
		bytesLeft, every := int64(0), m.Bytes()/splitSamples+1
		for ok := src.First(); ok; ok = src.Next() {
			if bytesLeft += int64(len(src.Key()) + len(src.Value())); bytesLeft >= every {
				all = append(all, sample{bytes.Clone(ikey.RowPrefix(src.Key())), bytesLeft})
				bytesLeft = 0
			}
		}
	}
	return all
}

// rowCursor finds rows of a tablet that have entries, including deletions.
type rowCursor struct {
	merge  merge
	lo, hi []byte
	iters  []*sstable.Iter
}

func (t *Tablet) newRowCursor(v *view) *rowCursor {
	c := &rowCursor{}
	c.lo, c.hi = rowBounds(t.start, t.end)
	var sources []source
	for _, g := range v.groups {
		for _, f := range g.files {
			it := f.table.NewIter(sstable.IterOptions{NoCacheFill: true})
			c.iters = append(c.iters, it)
			sources = append(sources, boundedSource(it, f.meta.Start, f.meta.End))
		}
	}
	for _, m := range append(slices.Clone(v.frozen), v.active) {
		sources = append(sources, &memSource{m.Iter()})
	}
	c.merge.reset(sources)
	return c
}

func (c *rowCursor) close() {
	for _, it := range c.iters {
		it.Close()
	}
}

// from returns the first row at or above an internal key, or nil.
func (c *rowCursor) from(key []byte) []byte {
	c.merge.seekGE(key)
	if !c.merge.valid() || c.hi != nil && bytes.Compare(c.merge.key(), c.hi) >= 0 {
		return nil
	}
	return bytes.Clone(ikey.RowPrefix(c.merge.key()))
}

// parts reports whether there is a row above row.
func (c *rowCursor) parts(row []byte) bool { return c.from(ikey.AppendRowEnd(nil, row)) != nil }

// wholeRowMax is the longest row, in bytes, that is used whole as the end of a tablet. Clients keep
// ends in memory, so longer rows are shortened to a separator, as in the index of an SSTable.
const wholeRowMax = 1 << 10

// after returns a split key that makes row the last one of the lower half.
func (c *rowCursor) after(row []byte) []byte {
	if len(row) <= wholeRowMax {
		return row
	}
	if next := c.from(ikey.AppendRowEnd(nil, row)); next != nil {
		return separator(row, next)
	}
	return row
}

// below returns a split key that makes row the first one of the upper half.
func (c *rowCursor) below(row []byte) []byte {
	if len(row) <= wholeRowMax {
		return rowBelow(row)
	}
	// A prefix of row is below it. The longer the prefix, the fewer rows lie between.
	n := sort.Search(len(row), func(n int) bool {
		return string(c.from(ikey.AppendRow(nil, row[:n]))) == string(row)
	})
	if n == len(row) {
		return rowBelow(row)
	}
	return row[:n]
}

// separator returns a short key at or above row and below next.
func separator(row, next []byte) []byte {
	n := 0
	for n < len(row) && n < len(next) && row[n] == next[n] {
		n++
	}
	switch {
	case n >= len(row) || n >= len(next):
		return row // row is a prefix of next
	case len(next) > n+1:
		return next[:n+1]
	}
	for i := n; i < len(row); i++ {
		if at := append(bytes.Clone(row[:i]), row[i]+1); row[i] < 0xFF && string(at) < string(next) {
			return at
		}
	}
	return row
}

// rowBelow returns a key below row with few possible keys between. A split there puts row into the
// upper half.
func rowBelow(row []byte) []byte {
	if len(row) == 0 {
		return nil
	}
	n := len(row) - 1
	if row[n] == 0 {
		return row[:n]
	}
	below := append(bytes.Clone(row[:n]), row[n]-1)
	return append(below, 0xFF, 0xFF, 0xFF, 0xFF)
}

// RowSample is a row of a table, and the approximate bytes of the rows above the previous sample up to it.
type RowSample struct {
	Row   []byte
	Bytes int64
}

// sampledMemtableMax is the size in bytes up to which the rows of memtables are sampled: that takes a walk through all of them.
const sampledMemtableMax = 4 << 20

// RowSamples returns about most samples of the rows of a table, in order, from the indexes of its files and small memtables.
func (s *Server) RowSamples(tableID uint64, most int) []RowSample {
	var all []sample
	total := int64(0)
	for _, t := range s.served.all() {
		if t.table != tableID {
			continue
		}
		v, _, err := t.views.acquire()
		if err != nil {
			continue // unloaded meanwhile
		}
		of, _ := t.fileSamples(v) // those that were read, if some cannot be
		if v.memtableBytes() <= sampledMemtableMax {
			of = append(of, t.memSamples(v)...)
		}
		for i := range of { // its row may be part of a file in memory
			of[i].row = bytes.Clone(of[i].row[:min(len(of[i].row), heat.RowMax)])
		}
		v.release()
		all = append(all, of...)
	}
	for i := range all {
		total += all[i].bytes
	}
	slices.SortFunc(all, func(a, b sample) int { return bytes.Compare(a.row, b.row) })
	var kept []RowSample
	n := int64(0)
	for i := range all {
		if n += all[i].bytes; n*int64(most) >= total || i == len(all)-1 {
			kept = append(kept, RowSample{all[i].row, n})
			n = 0
		}
	}
	return kept
}
