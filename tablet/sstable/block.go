package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// errBlock means that a block whose checksum is right does not hold what the
// format says. Readers turn it into a *CorruptError with file and offset.
var errBlock = errors.New("malformed block")

// block is a map block in memory, ready to be searched. It is never changed,
// and what its slices hold lives as long as anyone keeps a part of it.
type block struct {
	values   []byte
	keys     []byte // the key entries
	restarts []byte
	entries  int
	memory   int // bytes of heap that it keeps alive
}

// blockOverhead is the size of a block's header and of its place in the
// cache, for the cache's budget: measured at 104 + about 120 bytes.
const blockOverhead = 224

// parse points b at the parts of the map block p. It returns errBlock if
// they do not fit in p.
func (b *block) parse(p []byte) error {
	if len(p) < blockTailBytes {
		return errBlock
	}
	body, tail := p[:len(p)-blockTailBytes], p[len(p)-blockTailBytes:]
	entries := uint64(binary.LittleEndian.Uint32(tail))
	restarts := uint64(binary.LittleEndian.Uint32(tail[4:]))
	values := uint64(binary.LittleEndian.Uint32(tail[8:]))
	n := uint64(len(body))
	if restarts > entries || (restarts == 0) != (entries == 0) ||
		restarts*restartBytes > n || values > n-restarts*restartBytes {
		return errBlock
	}
	keysEnd := n - restarts*restartBytes
	// An entry has at least its three lengths.
	if entries*3 > keysEnd-values {
		return errBlock
	}
	b.values = body[:values:values]
	b.keys = body[values:keysEnd:keysEnd]
	b.restarts = body[keysEnd:]
	b.entries = int(entries)
	b.memory = cap(p) + blockOverhead
	return nil
}

func (b *block) numRestarts() int { return len(b.restarts) / restartBytes }

// restart returns where the i-th whole key and its value begin.
func (b *block) restart(i int) (keyOff, valueOff int) {
	r := b.restarts[i*restartBytes:]
	return int(binary.LittleEndian.Uint32(r)), int(binary.LittleEndian.Uint32(r[4:]))
}

// entry is one decoded key entry.
type entry struct {
	shared, unshared, value int // lengths
	next                    int // offset in keys of the first byte of the key's own part
}

// decodeEntry reads the lengths at off. ok is false if they are malformed or
// run out of the block's keys. The value's length is not yet checked.
func (b *block) decodeEntry(off int) (e entry, ok bool) {
	if uint(off) >= uint(len(b.keys)) {
		return e, false
	}
	p := b.keys[off:]
	if len(p) >= 3 && p[0]|p[1]|p[2] < 0x80 {
		e = entry{int(p[0]), int(p[1]), int(p[2]), off + 3}
		return e, e.unshared <= len(p)-3
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

// wholeKey returns the key at the i-th restart, an alias of the block.
func (b *block) wholeKey(i int) (key []byte, ok bool) {
	off, _ := b.restart(i)
	e, ok := b.decodeEntry(off)
	if !ok || e.shared != 0 {
		return nil, false
	}
	return b.keys[e.next : e.next+e.unshared : e.next+e.unshared], true
}

// at returns the key and value at the i-th restart, aliases of the block.
func (b *block) at(i int) (key, value []byte, ok bool) {
	off, valueOff := b.restart(i)
	e, ok := b.decodeEntry(off)
	if !ok || e.shared != 0 || valueOff > len(b.values) || e.value > len(b.values)-valueOff {
		return nil, nil, false
	}
	key = b.keys[e.next : e.next+e.unshared : e.next+e.unshared]
	return key, b.values[valueOff : valueOff+e.value : valueOff+e.value], true
}

// lastRestartLE returns the last restart from lo on whose key is at or below
// target, or lo-1 if there is none.
func (b *block) lastRestartLE(target []byte, lo int) (int, bool) {
	hi := b.numRestarts()
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
