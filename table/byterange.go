package table

import "bytes"

// BoundKind is the kind of a Bound: absent, inclusive or exclusive.
type BoundKind uint8

// The kinds of bound.
const (
	Unbounded BoundKind = iota
	// BoundClosed includes its value in the range.
	BoundClosed
	// BoundOpen excludes its value from the range.
	BoundOpen
)

// A Bound is one end of a ByteRange. The zero Bound is unbounded.
type Bound struct {
	Kind  BoundKind
	Value []byte
}

// Closed returns an inclusive bound. The bound keeps value.
func Closed(value []byte) Bound { return Bound{BoundClosed, value} }

// Open returns an exclusive bound. The bound keeps value.
func Open(value []byte) Bound { return Bound{BoundOpen, value} }

// A ByteRange is a range of byte strings in byte order. The zero range contains every string.
type ByteRange struct{ Start, End Bound }

// Contains reports whether b is in the range.
func (r *ByteRange) Contains(b []byte) bool {
	switch r.Start.Kind {
	case BoundClosed:
		if bytes.Compare(b, r.Start.Value) < 0 {
			return false
		}
	case BoundOpen:
		if bytes.Compare(b, r.Start.Value) <= 0 {
			return false
		}
	}
	switch r.End.Kind {
	case BoundClosed:
		return bytes.Compare(b, r.End.Value) <= 0
	case BoundOpen:
		return bytes.Compare(b, r.End.Value) < 0
	}
	return true
}

// valid reports whether the bounds are of known kinds and in order. A valid range may be empty.
func (r *ByteRange) valid() bool {
	if r.Start.Kind > BoundOpen || r.End.Kind > BoundOpen {
		return false
	}
	return r.Start.Kind == Unbounded || r.End.Kind == Unbounded || bytes.Compare(r.Start.Value, r.End.Value) <= 0
}

// empty reports whether the range is empty by its bounds alone.
func (r *ByteRange) empty() bool {
	if r.Start.Kind == Unbounded || r.End.Kind == Unbounded {
		return false
	}
	c := bytes.Compare(r.Start.Value, r.End.Value)
	return c > 0 || c == 0 && (r.Start.Kind == BoundOpen || r.End.Kind == BoundOpen)
}

// and returns the intersection of both ranges.
func (r ByteRange) and(o ByteRange) ByteRange {
	if r.Start.startsBefore(o.Start) {
		r.Start = o.Start
	}
	if o.End.endsBefore(r.End) {
		r.End = o.End
	}
	return r
}

// or returns the smallest range that contains both.
func (r ByteRange) or(o ByteRange) ByteRange {
	if o.Start.startsBefore(r.Start) {
		r.Start = o.Start
	}
	if r.End.endsBefore(o.End) {
		r.End = o.End
	}
	return r
}

func (b Bound) equal(o Bound) bool {
	return b.Kind == o.Kind && (b.Kind == Unbounded || bytes.Equal(b.Value, o.Value))
}

// startsBefore reports whether a range that starts at b contains more than one that starts at o.
func (b Bound) startsBefore(o Bound) bool {
	if b.Kind == Unbounded || o.Kind == Unbounded {
		return b.Kind == Unbounded && o.Kind != Unbounded
	}
	if c := bytes.Compare(b.Value, o.Value); c != 0 {
		return c < 0
	}
	return b.Kind == BoundClosed && o.Kind == BoundOpen
}

// endsBefore reports whether a range that ends at b contains less than one that ends at o.
func (b Bound) endsBefore(o Bound) bool {
	if b.Kind == Unbounded || o.Kind == Unbounded {
		return o.Kind == Unbounded && b.Kind != Unbounded
	}
	if c := bytes.Compare(b.Value, o.Value); c != 0 {
		return c < 0
	}
	return b.Kind == BoundOpen && o.Kind == BoundClosed
}
