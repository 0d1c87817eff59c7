package sstable

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/FastFilter/xorfilter"
)

// filterPartHashes is the number of prefixes after which a filter block ends. 64 Ki: a block of 78
// KB, and 2.3 MiB of memory to build it, for any file size.
const filterPartHashes = 64 << 10

// filterBuilder collects the hashes of the prefixes of one filter block.
type filterBuilder struct {
	prefixes func(key []byte, dst []int) []int
	hashes   []uint64
	lens     []int // prefixes of the last key
	prev     []int
	fuse     xorfilter.BinaryFuseBuilder
	total    uint64 // hashes in finished blocks
}

// add adds the prefixes of key, which shares its first shared bytes with the previous key. It
// returns an error if FilterPrefixes returns an invalid length.
func (f *filterBuilder) add(key []byte, shared int) error {
	f.prev, f.lens = f.lens, f.prefixes(key, f.prev[:0])
	for _, n := range f.lens {
		if n < 1 || n > len(key) {
			return fmt.Errorf("%w: filter prefix of %d bytes of a key of %d bytes", ErrBadOption, n, len(key))
		}
		if n <= shared && slices.Contains(f.prev, n) {
			continue // the previous key had the same prefix
		}
		f.hashes = append(f.hashes, filterHash(key[:n]))
	}
	return nil
}

// finish appends the filter block to dst and prepares for the next one.
func (f *filterBuilder) finish(dst []byte) []byte {
	n := len(f.hashes)
	h := filterHeader{kind: filterAll, prefixes: uint32(n)}
	var fingerprints []byte
	// Building fails only with negligible probability. If it does, this filter block contains every
	// hash.
	fuse, err := xorfilter.BuildBinaryFuse[uint8](&f.fuse, f.hashes)
	if err == nil {
		h.kind, h.seed, h.segment, h.segments = filterFuse8, fuse.Seed, fuse.SegmentLength, fuse.SegmentCount
		fingerprints = fuse.Fingerprints
	}
	f.total += uint64(n)
	f.hashes = f.hashes[:0]
	f.lens = f.lens[:0]
	return append(h.append(dst), fingerprints...)
}

// filterHeader is the header of a filter block.
type filterHeader struct {
	kind     uint8
	prefixes uint32 // number of hashes
	seed     uint64
	segment  uint32 // fingerprints a segment, a power of two
	segments uint32 // without the two extra ones at the end
}

func (h filterHeader) append(dst []byte) []byte {
	dst = append(dst, h.kind, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, h.prefixes)
	dst = binary.LittleEndian.AppendUint64(dst, h.seed)
	dst = binary.LittleEndian.AppendUint32(dst, h.segment)
	return binary.LittleEndian.AppendUint32(dst, h.segments)
}
