package sstable

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Types of filter blocks. The numbers are in files: append only.
const (
	filterAll   = 0 // lets everything pass
	filterFuse8 = 1 // binary fuse, 8-bit fingerprints: 0.4% false positives at 9 bits a prefix
)

const (
	// filterHeaderBytes precede the fingerprints: type u8, three zero
	// bytes, prefixes u32, seed u64, segment length u32, segments u32.
	filterHeaderBytes = 24
	// filterSegmentMax is the longest segment, as the construction of
	// binary fuse filters has it.
	filterSegmentMax = 1 << 18
)

// filterHash is the hash of a prefix: xxHash64 with seed 0.
func filterHash(prefix []byte) uint64 { return xxhash.Sum64(prefix) }

// filterPart is a filter block in memory. The way from a hash to its three
// fingerprints is part of the file format, so it is here and not left to
// the library that builds the filter.
type filterPart struct {
	fingerprints []byte // nil: lets everything pass
	seed         uint64
	span         uint64 // fingerprints where the first of the three may be
	segment      uint32
	mask         uint32
	prefixes     uint32
}

// parse points f at the filter block p. It returns errBlock if the numbers
// in it do not agree, so that contains never leaves the fingerprints.
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

// contains tells whether hash may be in the filter.
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

// mix is the finalizer of MurmurHash3 for 64 bits.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// filter is all filter blocks of a table. seps has the separator that each
// begins at.
type filter struct {
	seps   indexBlock
	parts  []filterPart
	memory int64
}

// mayContain asks the one block that must know prefix if any key of the
// table has it. That is the last block whose separator is at or below
// prefix: the separator of the next block is a prefix of its first key, just
// long enough to be above the last key before, so if it is above prefix and
// its key has the prefix, the key before has it too.
func (f *filter) mayContain(prefix []byte) bool {
	i := 0
	if len(f.parts) > 1 {
		i, _ = f.seps.find(prefix)
	}
	return f.parts[i].contains(filterHash(prefix))
}
