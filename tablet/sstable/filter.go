package sstable

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Types of filter blocks. The numbers are stored in files: append only.
const (
	filterAll   = 0 // contains every hash
	filterFuse8 = 1 // binary fuse, 8-bit fingerprints: 0.4% false positives at 9 bits a prefix
)

const (
	// filterHeaderBytes precede the fingerprints: type u8, three zero bytes, prefixes u32, seed
	// u64, segment length u32, segments u32.
	filterHeaderBytes = 24
	// filterSegmentMax is the maximum segment length in the construction of binary fuse filters.
	filterSegmentMax = 1 << 18
)

// filterHash returns the hash of a prefix: xxHash64 with seed 0.
func filterHash(prefix []byte) uint64 { return xxhash.Sum64(prefix) }

// filterPart is a filter block in memory. The mapping from a hash to its three fingerprints is part
// of the file format, so it is implemented here and not left to the library that builds the filter.
type filterPart struct {
	fingerprints []byte // nil: contains every hash
	seed         uint64
	span         uint64 // number of possible places of the first fingerprint
	segment      uint32
	mask         uint32
	prefixes     uint32
}

// parse makes f refer to the filter block p. It returns errBlock if the numbers in it are
// inconsistent, so that contains never indexes outside the fingerprints.
func (f *filterPart) parse(p []byte) error {
	if len(p) < filterHeaderBytes || p[1]|p[2]|p[3] != 0 {
		return errBlock
	}
	f.prefixes = binary.LittleEndian.Uint32(p[4:])
	f.seed = binary.LittleEndian.Uint64(p[8:])
	f.segment = binary.LittleEndian.Uint32(p[16:])
	segments := uint64(binary.LittleEndian.Uint32(p[20:]))
	switch p[0] {
	case filterAll:
		if len(p) != filterHeaderBytes || f.seed != 0 || f.segment != 0 || segments != 0 {
			return errBlock
		}
		return nil
	case filterFuse8:
		if f.segment == 0 || f.segment&(f.segment-1) != 0 || f.segment > filterSegmentMax || segments == 0 ||
			(segments+2)*uint64(f.segment) != uint64(len(p)-filterHeaderBytes) {
			return errBlock
		}
		f.fingerprints = p[filterHeaderBytes:]
		f.mask = f.segment - 1
		f.span = segments * uint64(f.segment)
		return nil
	}
	return errBlock
}

// contains reports whether hash may be in the filter.
func (f *filterPart) contains(hash uint64) bool {
	if f.fingerprints == nil {
		return true
	}
	hash = mix(hash + f.seed)
	hi, _ := bits.Mul64(hash, f.span)
	h0 := uint32(hi)
	h1 := (h0 + f.segment) ^ (uint32(hash>>18) & f.mask)
	h2 := (h0 + 2*f.segment) ^ (uint32(hash) & f.mask)
	fp := uint8(hash ^ hash>>32)
	return fp == f.fingerprints[h0]^f.fingerprints[h1]^f.fingerprints[h2]
}

// mix is the 64-bit finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// filter has all filter blocks of a table. seps has the separators at which they begin.
type filter struct {
	seps   indexBlock
	parts  []filterPart
	memory int64
}

// mayContain reports whether any key of the table may have the prefix. It checks one filter block:
// the last one whose separator is <= prefix. That is enough: the separator of the next block is a
// prefix of its first key, just long enough to be above the previous key. If it is above prefix and
// its key has the prefix, then the previous key has the prefix too.
func (f *filter) mayContain(prefix []byte) bool {
	i := 0
	if len(f.parts) > 1 {
		i, _ = f.seps.find(prefix)
	}
	return f.parts[i].contains(filterHash(prefix))
}
