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

// blockBuilder builds a map block. Values are appended at the front of the block; keys are buffered
// until finish, so that a lookup scans keys without skipping values.
type blockBuilder struct {
	interval int // entries per restart
	values   []byte
	keys     []byte
	restarts []byte
	entries  int
	sinceKey int // entries since the last restart
}

func (b *blockBuilder) empty() bool { return b.entries == 0 }

// size returns the current length of the block.
func (b *blockBuilder) size() int {
	return len(b.values) + len(b.keys) + len(b.restarts) + blockTailBytes
}

// sizeWith returns the length of the block after adding an entry whose key shares its first shared
// bytes with the previous key.
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

// add appends an entry. shared is the number of leading bytes that key shares with the previous
// key.
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
	if len(value) > bufferKeepBytes/4 { // finish then appends without copying the value
		b.values = slices.Grow(b.values, len(value)+len(b.keys)+len(b.restarts)+blockTailBytes)
	}
	b.values = append(b.values, value...)
	b.entries++
	b.sinceKey++
}

// finish returns the block, valid until the next call on the builder.
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

// reset empties the builder. It keeps the buffers unless a huge entry has grown them.
func (b *blockBuilder) reset() {
	b.values, b.keys, b.restarts = reuse(b.values), reuse(b.keys), reuse(b.restarts)
	b.entries, b.sinceKey = 0, 0
}

// bufferKeepBytes is the largest buffer kept for reuse. 4 MiB: four of the largest ordinary blocks.
// Only a huge value needs more.
const bufferKeepBytes = 4 << 20

func reuse(p []byte) []byte {
	if cap(p) > bufferKeepBytes {
		return nil
	}
	return p[:0]
}

func uvarintLen(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// commonPrefix returns the length of the common prefix of a and b.
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
