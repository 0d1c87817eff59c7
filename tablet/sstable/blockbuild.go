package sstable

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	restartBytes   = 8  // key offset u32, value offset u32
	blockTailBytes = 12 // entries u32, restarts u32, length of the values u32
)

// blockBuilder collects the entries of one map block. Values go to the front
// of the block as they come; keys are kept aside until finish, so that a
// look-up walks over keys without stepping over values.
type blockBuilder struct {
	interval int // entries from one whole key to the next
	values   []byte
	keys     []byte
	restarts []byte
	entries  int
	sinceKey int // entries since the last whole key
}

func (b *blockBuilder) empty() bool { return b.entries == 0 }

// size is the length of the block as it stands.
func (b *blockBuilder) size() int {
	return len(b.values) + len(b.keys) + len(b.restarts) + blockTailBytes
}

// sizeWith is the length of the block if an entry were added that shares
// the first shared bytes of its key with the key before it.
func (b *blockBuilder) sizeWith(keyLen, shared, valueLen int) int {
	n := b.size()
	if b.entries == 0 || b.sinceKey >= b.interval {
		n += restartBytes
		shared = 0
	}
	return n + entryBytes(keyLen, shared, valueLen)
}

func entryBytes(keyLen, shared, valueLen int) int {
	unshared := keyLen - shared
	return uvarintLen(shared) + uvarintLen(unshared) + uvarintLen(valueLen) + unshared + valueLen
}

// add appends an entry. shared is how many bytes key has in common with the
// key of the entry before it.
func (b *blockBuilder) add(key []byte, shared int, value []byte) {
	if b.entries == 0 || b.sinceKey >= b.interval {
		shared = 0
		b.sinceKey = 0
		b.restarts = binary.LittleEndian.AppendUint32(b.restarts, uint32(len(b.keys)))
		b.restarts = binary.LittleEndian.AppendUint32(b.restarts, uint32(len(b.values)))
	}
	b.keys = binary.AppendUvarint(b.keys, uint64(shared))
	b.keys = binary.AppendUvarint(b.keys, uint64(len(key)-shared))
	b.keys = binary.AppendUvarint(b.keys, uint64(len(value)))
	b.keys = append(b.keys, key[shared:]...)
	if len(value) > bufferKeepBytes/4 { // finish need not copy it to find room for the rest
		b.values = slices.Grow(b.values, len(value)+len(b.keys)+len(b.restarts)+blockTailBytes)
	}
	b.values = append(b.values, value...)
	b.entries++
	b.sinceKey++
}

// finish returns the block's bytes, which are good until the next call of
// the builder.
func (b *blockBuilder) finish() []byte {
	values := len(b.values)
	p := append(b.values, b.keys...)
	p = append(p, b.restarts...)
	p = binary.LittleEndian.AppendUint32(p, uint32(b.entries))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(b.restarts)/restartBytes))
	p = binary.LittleEndian.AppendUint32(p, uint32(values))
	b.values = p
	return p
}

// reset empties the builder and keeps its buffers, unless one entry made
// them huge.
func (b *blockBuilder) reset() {
	b.values, b.keys, b.restarts = reuse(b.values), reuse(b.keys), reuse(b.restarts)
	b.entries, b.sinceKey = 0, 0
}

// bufferKeepBytes is the largest buffer kept for reuse. 4 MiB: four of the
// largest ordinary blocks; beyond it was one huge value.
const bufferKeepBytes = 4 << 20

func reuse(p []byte) []byte {
	if cap(p) > bufferKeepBytes {
		return nil
	}
	return p[:0]
}

func uvarintLen(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// commonPrefix returns how many bytes a and b have in common at their start.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:])
		if x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for ; i < n && a[i] == b[i]; i++ {
	}
	return i
}
