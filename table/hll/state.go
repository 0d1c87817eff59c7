package hll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// BytesMax is the length of the longest sketch that is accepted. A normal one without unknown fields has 32,801 bytes at most.
const BytesMax = 64 << 10

// ErrBadSketch means that bytes are not a sketch that this package can merge.
var ErrBadSketch = errors.New("not a ZetaSketch of int64 values with precision 15 and sparse precision 20")

// The fields of a sketch, and what they must be.
const (
	fieldType, wantType       = 1, 112
	fieldValues               = 2
	fieldVersion, wantVersion = 3, 2
	fieldValueType            = 4
	fieldSketch               = 112

	fieldSparseSize      = 2
	fieldPrecision       = 3
	fieldSparsePrecision = 4
	fieldNormal          = 5
	fieldSparse          = 6
)

// Types of values that are hashed alike.
const (
	typeInt64  = 4
	typeUint64 = 8
)

// Wire types of protocol buffers.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// state is the parsed form of a sketch, whose bytes it shares.
type state struct {
	kind, version, valueType   uint64
	values                     uint64
	size                       uint64
	precision, sparsePrecision uint64
	normal, sparse             []byte
}

// parse parses a sketch, without looking at its data. The error is ErrBadSketch.
func parse(b []byte) (s state, err error) {
	if len(b) > BytesMax {
		return s, fmt.Errorf("%w: %d bytes, want at most %d", ErrBadSketch, len(b), BytesMax)
	}
	s.version = 1
	var inner []byte
	err = eachField(b, func(field int, number uint64, data []byte) {
		switch field {
		case fieldType:
			s.kind = number
		case fieldValues:
			s.values = number
		case fieldVersion:
			s.version = number
		case fieldValueType:
			s.valueType = number
		case fieldSketch:
			inner = data
		}
	})
	if err == nil {
		err = eachField(inner, s.field)
	}
	if err == nil {
		err = s.check()
	}
	return s, err
}

// field sets a field of the inner message.
func (s *state) field(field int, number uint64, data []byte) {
	switch field {
	case fieldSparseSize:
		s.size = number
	case fieldPrecision:
		s.precision = number
	case fieldSparsePrecision:
		s.sparsePrecision = number
	case fieldNormal:
		s.normal = data
	case fieldSparse:
		s.sparse = data
	}
}

// check checks everything but the data.
func (s *state) check() error {
	for _, f := range []struct {
		what      string
		got, want uint64
	}{
		{"type of aggregator", s.kind, wantType},
		{"version", s.version, wantVersion},
		{"precision", s.precision, precision},
		{"sparse precision", s.sparsePrecision, sparsePrecision},
	} {
		if f.got != f.want {
			return fmt.Errorf("%w: %s %d, want %d", ErrBadSketch, f.what, f.got, f.want)
		}
	}
	switch {
	case s.valueType != typeInt64 && s.valueType != typeUint64:
		return fmt.Errorf("%w: type of values %d, want %d or %d", ErrBadSketch, s.valueType, typeInt64, typeUint64)
	case s.values > math.MaxInt64:
		return fmt.Errorf("%w: a negative number of values", ErrBadSketch)
	case len(s.normal) > 0 && (len(s.sparse) > 0 || s.size > 0):
		return fmt.Errorf("%w: both normal and sparse", ErrBadSketch)
	case len(s.sparse) > registers: // a sketch becomes normal before
		return fmt.Errorf("%w: %d bytes of sparse data, want at most %d", ErrBadSketch, len(s.sparse), registers)
	case s.size > uint64(len(s.sparse)):
		return s.errSparse(0)
	case len(s.normal) > 0 && len(s.normal) != registers:
		return fmt.Errorf("%w: %d registers, want %d", ErrBadSketch, len(s.normal), registers)
	}
	return nil
}

// errSparse is the error of malformed sparse data.
func (s *state) errSparse(offset int) error {
	return fmt.Errorf("%w: malformed sparse data at byte %d of %d, or other than %d values", ErrBadSketch, offset, len(s.sparse), s.size)
}

// eachField calls f for each field of a protocol buffer: with its number, or its bytes. The error is ErrBadSketch.
func eachField(b []byte, f func(field int, number uint64, data []byte)) error {
	for rest := b; len(rest) > 0; {
		at := len(b) - len(rest)
		tag, n := binary.Uvarint(rest)
		if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			return fmt.Errorf("%w: malformed field at byte %d", ErrBadSketch, at)
		}
		number, data, left, ok := cutValue(int(tag&7), rest[n:])
		if !ok {
			return fmt.Errorf("%w: malformed field %d at byte %d", ErrBadSketch, tag>>3, at)
		}
		f(int(tag>>3), number, data)
		rest = left
	}
	return nil
}

// cutValue returns the value of a field of a wire type at the start of b, and the rest of b.
func cutValue(wire int, b []byte) (number uint64, data, rest []byte, ok bool) {
	size := 0
	switch wire {
	case wireVarint:
		number, size = binary.Uvarint(b)
		if size <= 0 {
			return 0, nil, nil, false
		}
	case wireBytes:
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return 0, nil, nil, false
		}
		size = n + int(length)
		data = b[n:size:size]
	case wire32:
		size = 4
	case wire64:
		size = 8
	default:
		return 0, nil, nil, false
	}
	if size > len(b) {
		return 0, nil, nil, false
	}
	return number, data, b[size:], true
}

// appendHeader appends a sketch up to the length of its data, which is dataLen bytes of a field.
func appendHeader(dst []byte, values uint64, size, field, dataLen int) []byte {
	inner := 4 + 1 + uvarintLen(uint64(dataLen)) + dataLen
	if size > 0 {
		inner += 1 + uvarintLen(uint64(size))
	}
	dst = append(dst, fieldType<<3|wireVarint, wantType, fieldValues<<3|wireVarint)
	dst = binary.AppendUvarint(dst, values)
	dst = append(dst, fieldVersion<<3|wireVarint, wantVersion, fieldValueType<<3|wireVarint, typeUint64)
	dst = binary.AppendUvarint(dst, fieldSketch<<3|wireBytes)
	dst = binary.AppendUvarint(dst, uint64(inner))
	if size > 0 {
		dst = append(dst, fieldSparseSize<<3|wireVarint)
		dst = binary.AppendUvarint(dst, uint64(size))
	}
	dst = append(dst, fieldPrecision<<3|wireVarint, precision, fieldSparsePrecision<<3|wireVarint, sparsePrecision, byte(field<<3|wireBytes))
	return binary.AppendUvarint(dst, uint64(dataLen))
}
