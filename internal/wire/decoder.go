package wire

import (
	"encoding/binary"
	"math"
)

// Decoder reads values one after another from a complete input. It is a value: copying it copies
// the position. It is not safe for concurrent use.
//
// The first error is sticky. After it, More reports false, Peek returns KindEnd and every read
// returns a zero value, so that loops end and one check of Err is enough.
type Decoder struct {
	b   []byte
	off int
	err error
}

// NewDecoder returns a Decoder at the start of b. The Decoder retains b and returns slices of it.
func NewDecoder(b []byte) Decoder { return Decoder{b: b} }

// Err returns the first error: a *FormatError, or the argument of Fail.
func (d *Decoder) Err() error { return d.err }

// Fail sets the Decoder's error unless it has one. It is for callers that reject a well-formed
// value.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
		d.b = d.b[:d.off]
	}
}

// Offset returns the number of bytes read.
func (d *Decoder) Offset() int { return d.off }

// Rest returns the bytes not yet read. They alias the input.
func (d *Decoder) Rest() []byte { return d.b[d.off:] }

// More reports whether bytes are left and no error has occurred.
func (d *Decoder) More() bool { return d.off < len(d.b) }

// Peek returns the kind of the next value without reading it. It returns KindEnd if none is left or
// its header is truncated.
func (d *Decoder) Peek() Kind { return headOf(d.b[d.off:]).kind }

// IsNil reads the next value if it is nil, and reports whether it was.
func (d *Decoder) IsNil() bool {
	if d.off < len(d.b) && d.b[d.off] == 0xc0 {
		d.off++
		return true
	}
	return false
}

// Array reads an array header and returns its count, which is at most the number of bytes left.
func (d *Decoder) Array() int {
	if d.off < len(d.b) && d.b[d.off]&0xf0 == 0x90 {
		if n := int(d.b[d.off] & 15); n < len(d.b)-d.off {
			d.off++
			return n
		}
	}
	return int(d.container(KindArray))
}

// ArrayMax is Array with an upper bound of max on the count; a larger one is an error. Use it
// before allocating count structs.
func (d *Decoder) ArrayMax(max int) int {
	start := d.off
	n := d.Array()
	if n > max {
		d.fail(start, "count over the limit")
		return 0
	}
	return n
}

// Map reads a map header and returns its number of key-value pairs, which is at most half the
// number of bytes left.
func (d *Decoder) Map() int { return int(d.container(KindMap) / 2) }

func (d *Decoder) container(want Kind) uint64 {
	h := d.next(want)
	if h.children > uint64(len(d.b)-d.off) {
		d.fail(d.off-h.size, "count exceeds the remaining bytes")
		return 0
	}
	return h.children
}

// Bytes reads a byte or text string. The result aliases the input and has no spare capacity.
func (d *Decoder) Bytes() []byte {
	h := headOf(d.b[d.off:])
	if h.kind != KindBytes && h.kind != KindStr {
		d.mismatch("bin", h.kind)
		return nil
	}
	start := d.off + h.size
	if h.body > uint64(len(d.b)-start) {
		d.fail(d.off, "length exceeds the remaining bytes")
		return nil
	}
	d.off = start + int(h.body)
	return d.b[start:d.off:d.off]
}

// Str reads a byte or text string and returns a copy of it.
func (d *Decoder) Str() string { return string(d.Bytes()) }

// Bool reads a boolean.
func (d *Decoder) Bool() bool {
	start := d.off
	if d.next(KindBool); d.err != nil {
		return false
	}
	return d.b[start] == 0xc3
}

// Int reads an integer. A value over 2^63-1 is an error. A float that is a whole number is read as
// an integer: see SafeIntegerMax.
func (d *Decoder) Int() int64 {
	start := d.off
	v, neg := d.integer()
	if !neg && v > math.MaxInt64 {
		d.fail(start, "integer over 63 bits")
		return 0
	}
	return int64(v)
}

// Uint reads a non-negative integer.
func (d *Decoder) Uint() uint64 {
	start := d.off
	v, neg := d.integer()
	if neg {
		d.fail(start, "negative integer")
		return 0
	}
	return v
}

// Float reads a float of 32 or 64 bits. It also reads an integer, rounded to the nearest float,
// since writers in other languages send whole numbers as integers.
func (d *Decoder) Float() float64 {
	if d.Peek() != KindInt {
		return d.float()
	}
	v, neg := d.integer()
	if neg {
		return float64(int64(v))
	}
	return float64(v)
}

// Skip reads past the next value of any kind.
func (d *Decoder) Skip() { d.Raw() }

// Raw reads the next value of any kind and returns its bytes, which alias the input. A value that
// nests deeper than 32 is an error.
func (d *Decoder) Raw() []byte {
	if d.err != nil {
		return nil
	}
	start := d.off
	n, err := Check(d.b[start:], Limits{Bytes: math.MaxInt})
	if bad, ok := err.(*FormatError); ok {
		d.fail(start+bad.Offset, bad.Reason)
		return nil
	}
	if err != nil {
		d.fail(start, "value truncated")
		return nil
	}
	d.off += n
	return d.b[start:d.off:d.off]
}

// SafeIntegerMax is the largest integer n such that a 64-bit float represents n and n+1 exactly. In
// languages whose only number type is a float, such as JavaScript, larger integers lose precision.
// Servers therefore return none, and Int and Uint reject larger floats.
const SafeIntegerMax = 1<<53 - 1

// integer reads an integer of any form, or a float that is a whole number of magnitude at most
// SafeIntegerMax. If neg is set, the value is two's complement.
func (d *Decoder) integer() (v uint64, neg bool) {
	if d.off < len(d.b) && d.b[d.off]&0xfe == 0xca {
		return d.wholeFloat()
	}
	start := d.off
	h := d.next(KindInt)
	if h.size == 0 {
		return 0, false
	}
	b := d.b[start:]
	var s int64
	switch c := b[0]; c {
	case 0xcc:
		return uint64(b[1]), false
	case 0xcd:
		return uint64(binary.BigEndian.Uint16(b[1:])), false
	case 0xce:
		return uint64(binary.BigEndian.Uint32(b[1:])), false
	case 0xcf:
		return binary.BigEndian.Uint64(b[1:]), false
	case 0xd0:
		s = int64(int8(b[1]))
	case 0xd1:
		s = int64(int16(binary.BigEndian.Uint16(b[1:])))
	case 0xd2:
		s = int64(int32(binary.BigEndian.Uint32(b[1:])))
	case 0xd3:
		s = int64(binary.BigEndian.Uint64(b[1:]))
	default:
		s = int64(int8(c))
	}
	return uint64(s), s < 0
}

// wholeFloat reads a float that is a whole number, as an integer.
func (d *Decoder) wholeFloat() (v uint64, neg bool) {
	start := d.off
	f := d.float()
	if !(f >= -SafeIntegerMax && f <= SafeIntegerMax && f == math.Trunc(f)) { // false for NaN
		d.fail(start, "want int, got a float that is not a whole number below 2^53")
		return 0, false
	}
	return uint64(int64(f)), f < 0
}

// float reads a float of 32 or 64 bits.
func (d *Decoder) float() float64 {
	start := d.off
	switch h := d.next(KindFloat); h.size {
	case 5:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(d.b[start+1:])))
	case 9:
		return math.Float64frombits(binary.BigEndian.Uint64(d.b[start+1:]))
	}
	return 0
}

// next reads the header of a value of kind want; for scalars this is the whole value. It returns
// the zero header after an error.
func (d *Decoder) next(want Kind) header {
	h := headOf(d.b[d.off:])
	if h.kind != want {
		d.mismatch(want.String(), h.kind)
		return header{}
	}
	if h.size > len(d.b)-d.off {
		d.fail(d.off, "value truncated")
		return header{}
	}
	d.off += h.size
	return h
}

func (d *Decoder) mismatch(want string, got Kind) {
	if d.err == nil {
		d.fail(d.off, "want "+want+", got "+got.String())
	}
}

func (d *Decoder) fail(at int, reason string) {
	d.Fail(&FormatError{Offset: at, Reason: reason})
}
