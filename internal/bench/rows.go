package bench

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// keyBytes is the length of a row key.
const keyBytes = 16

// appendKey appends the key of row i.
func appendKey(b []byte, i uint64) []byte {
	var digits [keyBytes]byte
	for p := keyBytes - 1; p >= 0; p-- {
		digits[p] = byte('0' + i%10)
		i /= 10
	}
	return append(b, digits[:]...)
}

// mix is a bijection of 64 bits in which every bit depends on every other (the
// finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unmix undoes mix.
func unmix(x uint64) uint64 {
	x = (x ^ x>>31 ^ x>>62) * 0x319642b2d24d8ec3
	x = (x ^ x>>27 ^ x>>54) * 0x96de1b173f119089
	return x ^ x>>30 ^ x>>60
}

// golden is 2^64 divided by the golden ratio: its multiples are far apart.
const golden = 0x9e3779b97f4a7c15

// values makes the values of a dataset's rows.
type values struct {
	seed uint64
	size int
}

// fill writes the value of row i to b, which has the size of a value. It is a run of
// SplitMix64 that starts at a place of the row's own, about 0.1 µs for 1000 bytes:
// incompressible, and different in its first 8 bytes already for each row.
func (v values) fill(b []byte, i uint64) {
	x := mix(v.seed + i*golden)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, mix(x))
		x += golden
		b = b[8:]
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], mix(x))
		copy(b, last[:])
	}
}

// good tells whether b is the value of row i.
func (v values) good(b []byte, i uint64) bool {
	if len(b) != v.size {
		return false
	}
	x := mix(v.seed + i*golden)
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != mix(x) {
			return false
		}
		x += golden
		b = b[8:]
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], mix(x))
	return string(b) == string(last[:len(b)])
}

// An order is the order in which the n rows of a dataset are visited.
type order struct {
	n    uint64
	bits uint // of a permuted number; 0 for the order of the numbers
	seed uint64
}

func sequential(n uint64) order { return order{n: n} }

// permuted visits the rows in an order that looks random, another for each seed.
func permuted(n, seed uint64) order {
	return order{n: n, bits: uint(max(bits.Len64(n-1), 2)), seed: mix(seed + golden)}
}

// at returns the i-th row, i < n. It permutes the numbers of so many bits, by steps
// that can each be undone, until it meets one below n: at most two rounds on average.
func (o order) at(i uint64) uint64 {
	if o.bits == 0 {
		return i
	}
	mask := uint64(1)<<o.bits - 1
	half := (o.bits + 1) / 2
	for {
		for round := range uint64(3) {
			i = (i + o.seed>>(8*round)) & mask
			i = i * (0xd1342543de82ef95 + o.seed&^1) & mask // by an odd number
			i ^= i >> half
		}
		if i < o.n {
			return i
		}
	}
}

// ranges hands out the places [0, n) of an order, range by range, and then again.
type ranges struct {
	n, size uint64
	whole   uint64 // n, rounded up to whole ranges
	next    atomic.Uint64
}

// newRanges makes ten ranges for each client, each a multiple of unit rows but the last.
func newRanges(n uint64, clients int, unit uint64) *ranges {
	size := (n + 10*uint64(clients) - 1) / (10 * uint64(clients))
	size = max(1, (size+unit-1)/unit) * unit
	return &ranges{n: n, size: size, whole: (n + size - 1) / size * size}
}

// take returns the next range [from, to), and the number of the pass that it is of.
func (r *ranges) take() (pass, from, to uint64) {
	at := r.next.Add(r.size) - r.size
	pass, from = at/r.whole, at%r.whole
	return pass, from, min(from+r.size, r.n)
}
