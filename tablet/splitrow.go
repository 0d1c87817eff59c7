package tablet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// ErrNoSplitRow means that a tablet has no row at which both halves would get
// something: it has one row, or none.
var ErrNoSplitRow = errors.New("tablet has no row to split at")

// splitSamples is about how many samples of each file are looked at: the halves are
// even to within 1/splitSamples of the bytes.
const splitSamples = 256

// splitTries bounds the rows that are tried, best first. More than a few are bad
// only if the tablet is mostly one row.
const splitTries = 64

// sample is a row and about the bytes that a source has between the sample before and
// it.
type sample struct {
	row   []byte
	bytes int64
}

// splitRow returns the row that parts the tablet's bytes most evenly, as far as the
// indexes of its files and its memtables tell, and leaves neither half empty. The
// error is ErrNoSplitRow, errGone, or of reading files.
func (t *Tablet) splitRow(ctx context.Context) ([]byte, error) {
	v, _, err := t.acquire()
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
		off int64 // from the middle
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
		// Of the rows from there on the first that there is: an index has less than whole rows, and METADATA's
		// tablets should end where one of its rows is, for whoever looks for the first row behind a key.
		row := candidates[i].row
		if there := rows.from(ikey.AppendRow(nil, row)); there != nil {
			row = there
		}
		for _, at := range [][]byte{rows.after(row), rows.below(row)} {
			if string(at) >= string(first) && t.server.checkEnd(at) == nil && t.holds(at) && rows.parts(at) {
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
	case first != nil && t.server.checkEnd(first) == nil && rows.parts(first): // as uneven as can be, but parted
		return first, nil
	}
	return nil, ErrNoSplitRow
}

// samples returns rows all over the tablet.
func (t *Tablet) samples(v *view) ([]sample, error) {
	var all []sample
	for _, g := range v.groups {
		for _, f := range g.files {
			m := f.meta
			if !m.within(t.start, t.end) {
				continue
			}
			lo, hi := rowBounds(m.Start, m.End)
			err := f.table.Samples(lo, hi, f.bytes/splitSamples+1, func(key []byte, n int64) {
				all = append(all, sample{ikey.RowPrefix(key), n})
			})
			if err != nil {
				return nil, err
			}
		}
	}
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
	return all, nil
}

// rowCursor finds rows of a tablet that have entries, deletions among them.
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

// parts says whether there is a row above that one.
func (c *rowCursor) parts(row []byte) bool { return c.from(ikey.AppendRowEnd(nil, row)) != nil }

// wholeRowMax is the longest row that a tablet ends at whole. Ends are in memory with every client, so of longer rows only
// as much is taken as it takes to part them, like in the index of an SSTable.
const wholeRowMax = 1 << 10

// after returns where to split so that row is the last one of the lower half.
func (c *rowCursor) after(row []byte) []byte {
	if len(row) <= wholeRowMax {
		return row
	}
	if next := c.from(ikey.AppendRowEnd(nil, row)); next != nil {
		return separator(row, next)
	}
	return row
}

// below returns where to split so that row is the first one of the upper half.
func (c *rowCursor) below(row []byte) []byte {
	if len(row) <= wholeRowMax {
		return rowBelow(row)
	}
	// What row begins with is below it. The longer that is, the fewer rows come between.
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
		return row // next begins with it
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

// rowBelow returns a row key below row that few rows come between: a split there puts
// row into the upper half.
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
