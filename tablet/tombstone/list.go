package tombstone

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
)

// Range is a range tombstone. It hides the entries of the rows Start <= row < End that have sequence numbers up to Seq. An empty End
// means no bound.
type Range struct {
	Start, End []byte
	Seq        uint64
}

// holds reports whether row is in the range.
func (r *Range) holds(row []byte) bool {
	return bytes.Compare(row, r.Start) >= 0 && (len(r.End) == 0 || bytes.Compare(row, r.End) < 0)
}

// empty reports whether the range has no rows.
func (r *Range) empty() bool { return len(r.End) > 0 && bytes.Compare(r.Start, r.End) >= 0 }

// compareEnds compares two ends of ranges.
func compareEnds(a, b []byte) int {
	if len(a) == 0 || len(b) == 0 {
		return cmp.Compare(len(b), len(a))
	}
	return bytes.Compare(a, b)
}

// List is the range tombstones of a tablet (RT1). Lists are immutable: methods return new ones.
type List []Range

// Of returns the sequence number up to which the entries of a row are hidden; 0 if none are.
func (l List) Of(row []byte) uint64 {
	i := l.after(row)
	if i > 0 && l[i-1].holds(row) {
		return l[i-1].Seq
	}
	return 0
}

// after returns the index of the first range that begins after row.
func (l List) after(row []byte) int {
	return sort.Search(len(l), func(i int) bool { return bytes.Compare(l[i].Start, row) > 0 })
}

// Has reports whether a range is in the list as it is.
func (l List) Has(r Range) bool {
	i := l.after(r.Start)
	return i > 0 && l[i-1].Seq == r.Seq && bytes.Equal(l[i-1].Start, r.Start) && bytes.Equal(l[i-1].End, r.End)
}

// Last returns the highest sequence number; 0 if the list is empty.
func (l List) Last() (seq uint64) {
	for i := range l {
		seq = max(seq, l[i].Seq)
	}
	return seq
}

// Bytes returns the bytes of the rows that bound the ranges.
func (l List) Bytes() (n int) {
	for i := range l {
		n += len(l[i].Start) + len(l[i].End)
	}
	return n
}

// Add returns the list with a range, whose sequence number is at or above all others. Neighbours with the same number become one range.
func (l List) Add(r Range) List {
	if r.empty() {
		return l
	}
	var all List
	for _, old := range l {
		below, above := old, old
		if len(old.End) == 0 || bytes.Compare(old.End, r.Start) > 0 {
			below.End = r.Start
		}
		if bytes.Compare(below.Start, r.Start) < 0 && !below.empty() {
			all = append(all, below)
		}
		if len(r.End) == 0 {
			continue
		}
		if bytes.Compare(old.Start, r.End) < 0 {
			above.Start = r.End
		}
		if !above.empty() {
			all = append(all, above)
		}
	}
	all = append(all, r)
	return all.tidy()
}

// Raise returns the list with number seq for the ranges whose numbers are above one: there are no entries of the tablet from there up to seq.
func (l List) Raise(above, seq uint64) List {
	raised := slices.Clone(l)
	for i := range raised {
		if raised[i].Seq > above {
			raised[i].Seq = seq
		}
	}
	return raised
}

// tidy sorts a list and joins neighbours with the same number.
func (l List) tidy() List {
	slices.SortFunc(l, func(a, b Range) int { return bytes.Compare(a.Start, b.Start) })
	tidy := l[:0]
	for _, r := range l {
		if n := len(tidy); n > 0 && tidy[n-1].Seq == r.Seq && len(tidy[n-1].End) > 0 && bytes.Equal(tidy[n-1].End, r.Start) {
			tidy[n-1].End = r.End
			continue
		}
		tidy = append(tidy, r)
	}
	return tidy
}

// Clip returns the part of the list in the rows start < row <= end of a tablet, an empty bound meaning none.
func (l List) Clip(start, end []byte) List {
	if len(l) == 0 {
		return nil
	}
	var part List
	for _, r := range l {
		if r = r.Clip(start, end); !r.empty() {
			part = append(part, r)
		}
	}
	return part
}

// Clip returns the part of the range in the rows start < row <= end of a tablet. It may be empty: then List.Add ignores it.
func (r Range) Clip(start, end []byte) Range {
	if len(start) > 0 {
		if first := following(start); bytes.Compare(first, r.Start) > 0 {
			r.Start = first
		}
	}
	if len(end) > 0 {
		if after := following(end); compareEnds(after, r.End) < 0 {
			r.End = after
		}
	}
	return r
}

// Covers reports whether the range has all rows start < row <= end.
func (r *Range) Covers(start, end []byte) bool {
	within := Range{}.Clip(start, end)
	return bytes.Compare(r.Start, within.Start) <= 0 && compareEnds(r.End, within.End) >= 0
}

// following returns the row key after row.
func following(row []byte) []byte { return append(bytes.Clone(row), 0) }

// Join returns the tombstones of two lists whose ranges do not overlap.
func Join(a, b List) List {
	return append(slices.Clone(a), b...).tidy()
}
