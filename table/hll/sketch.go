package hll

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
)

// pendingMax is the number of values that a sketch collects before it sorts them in. With 1,024, sorting them into a full sparse
// sketch takes about as long as collecting them.
const pendingMax = 1024

// A Sketch is the set of values that were added to it, approximately. The zero Sketch is empty. It takes at most 400 KiB.
type Sketch struct {
	values  uint64   // added
	sorted  []uint32 // sparse values; the last of each index
	pending []uint32 // sparse values that are not sorted in
	spare   []uint32 // memory for the next sorted
	normal  []byte   // the registers; nil while the sketch is sparse
}

// Reset makes the sketch empty. It keeps its memory.
func (s *Sketch) Reset() {
	*s = Sketch{sorted: s.sorted[:0], pending: s.pending[:0], spare: s.spare[:0]}
}

// Add adds a value.
func (s *Sketch) Add(n int64) {
	s.count(1)
	s.put(sparseOf(fingerprint(n)))
}

// Merge adds the values of a sketch in ZetaSketch's form. After an error, which is ErrBadSketch, s may have some of them.
func (s *Sketch) Merge(sketch []byte) error {
	other, err := parse(sketch)
	if err != nil {
		return err
	}
	s.count(other.values)
	if len(other.normal) > 0 {
		return s.mergeNormal(other.normal)
	}
	if s.normal != nil || other.size < pendingMax {
		return other.eachSparse(s.put)
	}
	s.sortIn()
	s.pending = slices.Grow(s.pending, int(other.size))
	err = other.eachSparse(func(v uint32) { s.pending = append(s.pending, v) })
	s.sortIn()
	return err
}

// Check checks the form of a sketch. It allocates nothing but the error, which is ErrBadSketch.
func Check(sketch []byte) error {
	s, err := parse(sketch)
	if err != nil {
		return err
	}
	if len(s.normal) > 0 {
		return checkNormal(s.normal)
	}
	return s.eachSparse(func(uint32) {})
}

// AppendOne appends the sketch of one value.
func AppendOne(dst []byte, n int64) []byte {
	v := uint64(sparseOf(fingerprint(n)))
	return binary.AppendUvarint(appendHeader(dst, 1, 1, fieldSparse, uvarintLen(v)), v)
}

// sketches are for AppendCanonical.
var sketches = sync.Pool{New: func() any { return new(Sketch) }}

// AppendCanonical appends a sketch in the form in which Sketch.Append has it: without unknown fields, and of the type uint64. The error is ErrBadSketch.
func AppendCanonical(dst, sketch []byte) ([]byte, error) {
	s := sketches.Get().(*Sketch)
	defer sketches.Put(s)
	s.Reset()
	if err := s.Merge(sketch); err != nil {
		return dst, err
	}
	return s.Append(dst), nil
}

// Bytes returns the memory of the sketch, in bytes.
func (s *Sketch) Bytes() int { return 4*(cap(s.sorted)+cap(s.pending)+cap(s.spare)) + len(s.normal) }

// Append appends the sketch in ZetaSketch's form.
func (s *Sketch) Append(dst []byte) []byte {
	s.sortIn()
	if s.normal != nil {
		return append(appendHeader(dst, s.values, 0, fieldNormal, registers), s.normal...)
	}
	length, last := 0, uint32(0)
	for _, v := range s.sorted {
		length += uvarintLen(uint64(v - last))
		last = v
	}
	dst = appendHeader(dst, s.values, len(s.sorted), fieldSparse, length)
	last = 0
	for _, v := range s.sorted {
		dst = binary.AppendUvarint(dst, uint64(v-last))
		last = v
	}
	return dst
}

func (s *Sketch) count(n uint64) { s.values = min(s.values+n, math.MaxInt64) }

// put adds a sparse value.
func (s *Sketch) put(v uint32) {
	if s.normal != nil {
		i, rho := register(v)
		s.normal[i] = max(s.normal[i], rho)
		return
	}
	if s.pending = append(s.pending, v); len(s.pending) >= pendingMax {
		s.sortIn()
	}
}

// sortIn sorts the pending values in, and makes the sketch normal if it is large.
func (s *Sketch) sortIn() {
	if len(s.pending) == 0 {
		return
	}
	slices.Sort(s.pending)
	merged, old, new := slices.Grow(s.spare[:0], len(s.sorted)+len(s.pending)), s.sorted, s.pending
	length, last := 0, uint32(0)
	for len(old)+len(new) > 0 {
		from := &old
		if len(old) == 0 || len(new) > 0 && new[0] < old[0] {
			from = &new
		}
		v := (*from)[0]
		*from = (*from)[1:]
		index := withoutRho(v)
		if index == last { // rho' is not smaller: values ascend
			merged[len(merged)-1] = v
			continue
		}
		merged = append(merged, v)
		length += uvarintLen(uint64(index - last))
		last = index
	}
	s.sorted, s.spare, s.pending = merged, s.sorted, s.pending[:0]
	if length >= sparseBytesMax {
		s.normalize()
	}
}

// normalize makes a sparse sketch without pending values a normal one.
func (s *Sketch) normalize() {
	s.normal = make([]byte, registers)
	for _, v := range s.sorted {
		s.put(v)
	}
	s.sorted = s.sorted[:0]
}

// mergeNormal merges registers.
func (s *Sketch) mergeNormal(other []byte) error {
	if err := checkNormal(other); err != nil {
		return err
	}
	if s.normal == nil {
		s.sortIn()
	}
	if s.normal == nil {
		s.normalize()
	}
	for i, rho := range other {
		s.normal[i] = max(s.normal[i], rho)
	}
	return nil
}

// checkNormal checks the values of registers.
func checkNormal(data []byte) error {
	for i, rho := range data {
		if rho > rhoMax {
			return fmt.Errorf("%w: register %d is %d, want at most %d", ErrBadSketch, i, rho, rhoMax)
		}
	}
	return nil
}

// eachSparse calls f for each sparse value, in ascending order.
func (s *state) eachSparse(f func(v uint32)) error {
	v, n := uint32(0), uint64(0)
	for rest := s.sparse; len(rest) > 0; n++ {
		at, ok := len(s.sparse)-len(rest), false
		if v, rest, ok = cutSparse(rest, v); !ok || n == s.size {
			return s.errSparse(at)
		}
		f(v)
	}
	if n != s.size {
		return s.errSparse(len(s.sparse))
	}
	return nil
}
