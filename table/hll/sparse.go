package hll

import (
	"encoding/binary"
	"math/bits"
)

// The numbers of the form: see the package comment.
const (
	precision       = 15
	sparsePrecision = 20
	registers       = 1 << precision
	// rhoMax is the largest value of a register, and rhoSparseMax that of rho'.
	rhoMax       = 64 - precision + 1
	rhoSparseMax = 64 - sparsePrecision + 1

	rhoBits   = 6
	rhoMask   = 1<<rhoBits - 1
	rhoFlag   = 1 << (precision + rhoBits)
	extraBits = sparsePrecision - precision
	extraMask = 1<<extraBits - 1

	// sparseBytesMax is the length of the sparse form at which a sketch becomes normal.
	sparseBytesMax = registers * 3 / 4
)

// sparseOf returns the sparse value of a hash.
func sparseOf(hash uint64) uint32 {
	index := uint32(hash >> (64 - sparsePrecision))
	if index&extraMask != 0 {
		return index
	}
	rho := min(bits.LeadingZeros64(hash<<sparsePrecision)+1, rhoSparseMax)
	return rhoFlag | index>>extraBits<<rhoBits | uint32(rho)
}

// validSparse reports whether v is the sparse value of some hash.
func validSparse(v uint32) bool {
	if v&rhoFlag == 0 {
		return v < 1<<sparsePrecision && v&extraMask != 0
	}
	rho := v & rhoMask
	return v < 2*rhoFlag && rho >= 1 && rho <= rhoSparseMax
}

// withoutRho returns what distinguishes the index of a sparse value from others, in the order of values.
func withoutRho(v uint32) uint32 {
	if v&rhoFlag == 0 {
		return v
	}
	return v &^ rhoMask
}

// register returns the register of a sparse value, and rho.
func register(v uint32) (i uint32, rho byte) {
	if v&rhoFlag == 0 {
		return v >> extraBits, byte(bits.LeadingZeros32(v&extraMask) - (32 - extraBits) + 1)
	}
	return (v &^ rhoFlag) >> rhoBits, byte(v&rhoMask + extraBits)
}

// cutSparse returns the sparse value after last at the start of data, and the rest of data. ok is false if there is no valid one.
func cutSparse(data []byte, last uint32) (v uint32, rest []byte, ok bool) {
	diff, n := binary.Uvarint(data)
	if n <= 0 || diff >= 2*rhoFlag {
		return 0, nil, false
	}
	v = last + uint32(diff)
	return v, data[n:], validSparse(v) && withoutRho(v) > withoutRho(last)
}

// uvarintLen returns the length of the uvarint of x.
func uvarintLen(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }
