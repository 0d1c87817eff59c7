package sstable

import (
	"bytes"
	"encoding/binary"
)

// indexBlock is a map block from separators to handles with a restart for every entry.
//
// A prepared one also has two dense arrays with what a lookup reads. A lookup mostly waits for
// memory, and the arrays are a tenth of the block.
type indexBlock struct {
	block
	limit int64 // blocks end at or before it

	// common is the common prefix of all separators but the first. tags are the eight bytes after
	// it, big-endian, padded with zeros. If the tags of two keys differ, they order the keys.
	common []byte
	tags   []uint64
	// places are the offsets of the blocks, shifted left by one, with the lowest bit set if the
	// block is compressed; and at last the end of the last block.
	places []uint64
}

// parse makes x refer to the block p. Handles must end at or before limit.
func (x *indexBlock) parse(p []byte, limit int64) error {
	*x = indexBlock{limit: limit}
	if err := x.block.parse(p); err != nil {
		return err
	}
	if x.numRestarts() != x.entries {
		return errBlock
	}
	return nil
}

// memory returns the size of the heap memory that x references.
func (x *indexBlock) memory() int64 {
	return int64(len(x.values)+len(x.keys)+len(x.restarts)+blockTailBytes+trailerBytes) +
		8*int64(len(x.tags)+len(x.places)) + 160
}

// prepare builds the arrays. It returns errBlock if a handle is malformed or the blocks are not
// contiguous.
func (x *indexBlock) prepare() error {
	n := x.entries
	if n == 0 {
		return nil
	}
	x.places = make([]uint64, n+1)
	x.tags = make([]uint64, n)
	if n > 1 {
		first, ok1 := x.wholeKey(1)
		last, ok2 := x.wholeKey(n - 1)
		if !ok1 || !ok2 {
			return errBlock
		}
		x.common = first[:commonPrefix(first, last)]
	}
	end := int64(0)
	for i := range n {
		sep, h, ok := x.entry(i)
		if !ok || i > 0 && (h.off != end || !bytes.HasPrefix(sep, x.common)) {
			return errBlock
		}
		end = h.end()
		x.places[i] = uint64(h.off) << 1
		if h.compressed {
			x.places[i] |= 1
		}
		if i > 0 {
			x.tags[i] = keyTag(sep[len(x.common):])
			if x.tags[i] < x.tags[i-1] {
				return errBlock
			}
		}
	}
	x.places[n] = uint64(end) << 1
	return nil
}

// keyTag returns the first eight bytes of p as an integer.
func keyTag(p []byte) uint64 {
	if len(p) >= 8 {
		return binary.BigEndian.Uint64(p)
	}
	var b [8]byte
	copy(b[:], p)
	return binary.BigEndian.Uint64(b[:])
}

// find returns the last entry whose separator is <= target, or the first entry. ok is false if the
// block is malformed. The block must not be empty.
func (x *indexBlock) find(target []byte) (i int, ok bool) {
	if x.tags == nil {
		return x.lastLE(target, 1, x.entries)
	}
	c := len(x.common)
	if len(target) < c || !bytes.Equal(target[:c], x.common) {
		if bytes.Compare(target, x.common) < 0 {
			return 0, true
		}
		return x.entries - 1, true
	}
	tag := keyTag(target[c:])
	i = lastTagLE(x.tags, tag)
	if i == 0 || x.tags[i] != tag {
		return i, true
	}
	first := 1 // of those with the same tag
	if tag > 0 {
		first = lastTagLE(x.tags[:i], tag-1) + 1
	}
	return x.lastLE(target, first, i+1)
}

// lastTagLE returns the index of the last tag <= tag, ignoring the first element, or 0.
func lastTagLE(tags []uint64, tag uint64) int {
	lo, hi := 1, len(tags)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if tags[mid] <= tag {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// entry decodes the i-th separator and handle.
func (x *indexBlock) entry(i int) (sep []byte, h handle, ok bool) {
	sep, value, ok := x.at(i)
	if !ok {
		return nil, handle{}, false
	}
	h, ok = decodeHandle(value, x.limit)
	return sep, h, ok
}

// handle returns the i-th handle.
func (x *indexBlock) handle(i int) (h handle, ok bool) {
	if x.places == nil {
		_, h, ok = x.entry(i)
		return h, ok
	}
	p, next := x.places[i], x.places[i+1]
	off := int64(p >> 1)
	return handle{off: off, stored: int(int64(next>>1)-off) - trailerBytes, compressed: p&1 == 1}, true
}

// handles returns all handles.
func (x *indexBlock) handles() ([]handle, bool) {
	hs := make([]handle, x.entries)
	for i := range hs {
		var ok bool
		if hs[i], ok = x.handle(i); !ok {
			return nil, false
		}
	}
	return hs, true
}
