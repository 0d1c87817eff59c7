package table

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/steledb/stele/internal/wire"
)

// RowRange is a range of rows: Start <= row < End. An empty End means no end.
type RowRange struct{ Start, End []byte }

// RowKeyRange returns the range of one row.
func RowKeyRange(key []byte) RowRange {
	both := append(bytes.Clone(key), 0)
	return RowRange{both[:len(key):len(key)], both}
}

// Has reports whether a row is in the range.
func (r *RowRange) Has(row []byte) bool {
	return bytes.Compare(row, r.Start) >= 0 && (len(r.End) == 0 || bytes.Compare(row, r.End) < 0)
}

// oneKey reports whether the range has one row key at most.
func (r *RowRange) oneKey() bool {
	n := len(r.Start)
	return len(r.End) == n+1 && r.End[n] == 0 && bytes.Equal(r.End[:n], r.Start)
}

// RowSet is a set of rows: ranges in ascending order that neither overlap nor touch. It is immutable. A nil set has
// all rows.
type RowSet struct {
	ranges []RowRange
	bytes  int64
}

// NewRowSet returns the set of the rows in any of the ranges, which it sorts and keeps.
func NewRowSet(ranges []RowRange) *RowSet {
	ranges = slices.DeleteFunc(ranges, func(r RowRange) bool { return len(r.End) > 0 && bytes.Compare(r.Start, r.End) >= 0 })
	slices.SortFunc(ranges, func(a, b RowRange) int { return bytes.Compare(a.Start, b.Start) })
	s := &RowSet{ranges: ranges[:0]}
	for _, r := range ranges {
		if n := len(s.ranges); n > 0 {
			last := &s.ranges[n-1]
			if len(last.End) == 0 {
				break
			}
			if bytes.Compare(r.Start, last.End) <= 0 {
				if len(r.End) == 0 || bytes.Compare(r.End, last.End) > 0 {
					last.End = r.End
				}
				continue
			}
		}
		s.ranges = append(s.ranges, r)
	}
	s.bytes = int64(cap(ranges)) * int64(unsafe.Sizeof(RowRange{}))
	for i := range s.ranges {
		s.bytes += int64(len(s.ranges[i].Start) + len(s.ranges[i].End))
	}
	return s
}

// Len returns the number of ranges.
func (s *RowSet) Len() int { return len(s.ranges) }

// At returns a range. It must not be changed.
func (s *RowSet) At(i int) RowRange { return s.ranges[i] }

// Key returns the key of a range that has one row key.
func (s *RowSet) Key(i int) (key []byte, ok bool) { return s.ranges[i].Start, s.ranges[i].oneKey() }

// Bytes returns the approximate memory of the set.
func (s *RowSet) Bytes() int64 {
	if s == nil {
		return 0
	}
	return s.bytes
}

// Slice returns the set of the ranges from from to before to. It shares their memory.
func (s *RowSet) Slice(from, to int) *RowSet {
	return &RowSet{ranges: s.ranges[from:to:to], bytes: s.bytes}
}

// First returns the index of the first range with rows at or above key; Len if there is none.
func (s *RowSet) First(key []byte) int {
	at, found := slices.BinarySearchFunc(s.ranges, key, func(r RowRange, key []byte) int {
		if len(r.End) == 0 {
			return 1
		}
		return bytes.Compare(r.End, key)
	})
	if found { // it ends before key
		at++
	}
	return at
}

// Last returns the index of the last range with rows below end; -1 if there is none. An empty end means no end.
func (s *RowSet) Last(end []byte) int {
	if len(end) == 0 {
		return len(s.ranges) - 1
	}
	at, _ := slices.BinarySearchFunc(s.ranges, end, func(r RowRange, end []byte) int { return bytes.Compare(r.Start, end) })
	return at - 1
}

// AppendRowSet encodes a set as an array whose elements are row keys and [start, end]. A nil end means no end.
func AppendRowSet(e *wire.Encoder, s *RowSet) {
	e.Array(len(s.ranges))
	for i := range s.ranges {
		if key, ok := s.Key(i); ok {
			e.Bin(key)
			continue
		}
		e.Array(2)
		e.Bin(s.ranges[i].Start)
		if end := s.ranges[i].End; len(end) == 0 {
			e.Nil()
		} else {
			e.Bin(end)
		}
	}
}

// Limits of a decoded row set: its elements, and the bytes of their keys.
const (
	RowSetRanges = 10_000
	RowSetBytes  = 1 << 20
)

// DecodeRowSet decodes a set in any order, also with overlapping and empty ranges. It does not alias the input. Errors:
// ErrBadEncoding, *LimitError.
func DecodeRowSet(d *wire.Decoder) (*RowSet, error) {
	n, err := count(d, "ranges of rows", RowSetRanges)
	if err != nil {
		return nil, err
	}
	ranges, keys := make([]RowRange, 0, n), 0
	for i := range n {
		r, err := decodeRowRange(d)
		if err != nil {
			return nil, decodeError(d, indexed("range of rows", i), err)
		}
		if keys += len(r.Start) + len(r.End); keys > RowSetBytes {
			return nil, &LimitError{What: "row set bytes", Limit: RowSetBytes, Got: int64(keys)}
		}
		ranges = append(ranges, r)
	}
	return NewRowSet(ranges), decodeError(d, "row set", nil)
}

func decodeRowRange(d *wire.Decoder) (r RowRange, err error) {
	if d.Peek() != wire.KindArray {
		key := d.Bytes()
		return RowKeyRange(key), d.Err()
	}
	if n := d.Array(); n != 2 && d.Err() == nil {
		return r, errForm("an array of %d, want a start and an end", n)
	}
	r.Start = bytes.Clone(d.Bytes())
	if d.IsNil() {
		return r, d.Err()
	}
	if r.End = bytes.Clone(d.Bytes()); len(r.End) == 0 && d.Err() == nil {
		return r, errForm("an empty end; nil means no end")
	}
	return r, d.Err()
}
