package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// errBlock means that a block with a valid checksum violates the format. Readers turn it into a
// *CorruptError with file and offset.
var errBlock = errors.New("malformed block")

// block is a parsed map block. The bytes never change, and stay in memory while any part of them is
// referenced.
type block struct {
	values   []byte
	keys     []byte // the key entries
	restarts []byte
	entries  int
}

// parse makes b refer to the parts of the map block p. It returns errBlock if they do not fit in p.
// It reads only the end of p, so it is called each time a block comes from the cache.
func (b *block) parse(p []byte) error {
	if len(p) < blockTailBytes {
		return errBlock
	}
	n := uint64(len(p) - blockTailBytes)
	tail := p[n:]
	entries := uint64(binary.LittleEndian.Uint32(tail))
	restarts := uint64(binary.LittleEndian.Uint32(tail[4:]))
	values := uint64(binary.LittleEndian.Uint32(tail[8:]))
	if restarts > entries || (restarts == 0) != (entries == 0) ||
		restarts*restartBytes > n || values > n-restarts*restartBytes {
		return errBlock
	}
	keysEnd := n - restarts*restartBytes
	// An entry has at least three length bytes, and the first restart is 0, 0.
	if entries*3 > keysEnd-values || restarts > 0 && binary.LittleEndian.Uint64(p[keysEnd:]) != 0 {
		return errBlock
	}
	b.values = p[:values:values]
	b.keys = p[values:keysEnd:keysEnd]
	b.restarts = p[keysEnd:n]
	b.entries = int(entries)
	return nil
}

func (b *block) numRestarts() int { return len(b.restarts) / restartBytes }

// restart returns the offsets of the i-th restart's key entry and value.
func (b *block) restart(i int) (keyOff, valueOff int) {
	r := binary.LittleEndian.Uint64(b.restarts[i*restartBytes:])
	return int(uint32(r)), int(r >> 32)
}

// entry is one decoded key entry.
type entry struct {
	shared, unshared, value int // lengths
	next                    int // offset in keys of the first byte of the key's own part
}

// decodeEntry decodes the lengths at off. ok is false if they are malformed or exceed the block's
// keys. The value's length is not checked.
func (b *block) decodeEntry(off int) (e entry, ok bool) {
	if uint(off) >= uint(len(b.keys)) {
		return e, false
	}
	p := b.keys[off:]
	// Fast path for keys below 128 bytes and values below 16 KiB.
	if len(p) >= 4 && p[0]|p[1] < 0x80 {
		if p[2] < 0x80 {
			e = entry{int(p[0]), int(p[1]), int(p[2]), off + 3}
			return e, e.unshared <= len(p)-3
		}
		if p[3] < 0x80 {
			e = entry{int(p[0]), int(p[1]), int(p[2]&0x7f) | int(p[3])<<7, off + 4}
			return e, e.unshared <= len(p)-4
		}
	}
	return decodeEntrySlow(p, off)
}

func decodeEntrySlow(p []byte, off int) (e entry, ok bool) {
	n := 0
	var v [3]int
	for i := range v {
		u, w := binary.Uvarint(p[n:])
		if w <= 0 || u > blockRawMax {
			return e, false
		}
		n += w
		v[i] = int(u)
	}
	e = entry{v[0], v[1], v[2], off + n}
	return e, e.unshared <= len(p)-n
}

// wholeKey returns the key at the i-th restart. It aliases the block.
func (b *block) wholeKey(i int) (key []byte, ok bool) {
	off, _ := b.restart(i)
	e, ok := b.decodeEntry(off)
	if !ok || e.shared != 0 {
		return nil, false
	}
	return b.keys[e.next : e.next+e.unshared : e.next+e.unshared], true
}

// at returns key and value at the i-th restart. They alias the block.
func (b *block) at(i int) (key, value []byte, ok bool) {
	off, valueOff := b.restart(i)
	e, ok := b.decodeEntry(off)
	if !ok || e.shared != 0 || valueOff > len(b.values) || e.value > len(b.values)-valueOff {
		return nil, nil, false
	}
	key = b.keys[e.next : e.next+e.unshared : e.next+e.unshared]
	return key, b.values[valueOff : valueOff+e.value : valueOff+e.value], true
}

// lastLE returns the last restart in [lo, hi) whose key is <= target, or lo-1 if there is none. ok
// is false if the block is malformed.
func (b *block) lastLE(target []byte, lo, hi int) (r int, ok bool) {
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		key, ok := b.wholeKey(mid)
		if !ok {
			return 0, false
		}
		if bytes.Compare(key, target) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1, true
}
