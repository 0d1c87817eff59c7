package client

import (
	"bytes"

	"github.com/steledb/stele/table"
)

// A request of a scan of a row set has at most partRanges of its ranges, or partBytes bytes of their keys. The rest are
// for later requests: they are often on other servers, and a server charges the user for the memory of a cursor.
const (
	partRanges = 1000
	partBytes  = 64 << 10
)

// skip moves the position of a scan to the next of its rows. It returns false if there are none.
func (f *fetcher) skip() bool {
	if f.rows != nil {
		i := f.rows.First(f.start)
		if f.opts.reversed {
			i = f.rows.Last(f.end)
		}
		if i < 0 || i == f.rows.Len() {
			return false
		}
		if in := f.rows.At(i); !f.opts.reversed && string(in.Start) > string(f.start) {
			f.start = bytes.Clone(in.Start)
		} else if f.opts.reversed && len(in.End) > 0 && (len(f.end) == 0 || string(in.End) < string(f.end)) {
			f.end = bytes.Clone(in.End)
		}
	}
	return len(f.end) == 0 || string(f.start) < string(f.end)
}

// part returns the next ranges of the row set, for one request; nil if all rows are scanned. If there are others after
// them, it sets more, and rest to the position of these.
func (f *fetcher) part() *table.RowSet {
	f.more = false
	if f.rows == nil {
		return nil
	}
	from, to, keys := f.rows.First(f.start), f.rows.Len(), 0
	fits := func(n, i int) bool {
		in := f.rows.At(i)
		keys += len(in.Start) + len(in.End)
		return n == 0 || n < partRanges && keys <= partBytes
	}
	if f.opts.reversed {
		to = f.rows.Last(f.end) + 1
		for from = to; from > 0 && fits(to-from, from-1); from-- {
		}
		if f.more = from > 0; f.more {
			f.rest = f.rows.At(from - 1).End
		}
		return f.rows.Slice(from, to)
	}
	for to = from; to < f.rows.Len() && fits(to-from, to); to++ {
	}
	if f.more = to < f.rows.Len(); f.more {
		f.rest = f.rows.At(to).Start
	}
	return f.rows.Slice(from, to)
}
