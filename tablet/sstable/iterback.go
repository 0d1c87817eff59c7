package sstable

import "bytes"

// SeekLT moves to the last entry with a key < key, within the bounds, and returns Valid. A nil key is above
// all others. It lifts the bound of SeekWithin. key must not alias Key.
//
// If that entry is near in the current block, it costs as much as a few calls of Next.
func (it *Iter) SeekLT(key []byte) bool {
	it.err = nil
	if it.within {
		it.opts.Upper, it.upper, it.within = it.upper, nil, false
		if it.loaded && !it.setInside() {
			return false
		}
	}
	if it.opts.Upper != nil && (key == nil || bytes.Compare(key, it.opts.Upper) > 0) {
		key = it.opts.Upper
	}
	if it.opts.Lower != nil && key != nil && bytes.Compare(key, it.opts.Lower) <= 0 || it.t.meta.Entries == 0 {
		return it.stop(nil)
	}
	if ok, err := it.holds(key); err != nil {
		return it.stop(err)
	} else if !ok {
		if err := it.index.seekLT(key); err != nil {
			return it.stop(err)
		}
		if !it.load() {
			return false
		}
	}
	for !it.seekBlockLT(key) {
		if it.data.bad {
			return it.stop(it.t.file.corrupt(it.index.h, kindData))
		}
		it.releaseBlock()
		if ok, err := it.index.back(); err != nil || !ok {
			return it.stop(err)
		}
		if !it.load() {
			return false
		}
	}
	if it.opts.Lower != nil && bytes.Compare(it.data.key, it.opts.Lower) < 0 {
		return it.stop(nil)
	}
	return true
}

// holds reports whether the block at index is loaded, and the last key < key is in it or in the one before.
func (it *Iter) holds(key []byte) (bool, error) {
	if !it.loaded || key == nil {
		return false, nil
	}
	return it.index.covers(key)
}

// seekBlockLT moves to the last entry of the current block with a key < key. Of the block of a large
// entry, buf has the key, also after the block was released.
func (it *Iter) seekBlockLT(key []byte) bool {
	switch {
	case it.released && key != nil && bytes.Compare(it.data.buf, key) >= 0:
		it.data.valid, it.data.key = false, nil
		return false
	case it.released:
		it.data.key, it.data.valid = it.data.buf, true
		return true
	case !it.data.seekLT(key):
		return false
	case it.single:
		it.data.setKey(nil, it.data.key)
	}
	return true
}

// SeekWithin moves to the first entry with lower <= key < upper and returns Valid. Next ends at upper, without
// reading a block that has only keys above it. The next SeekLT lifts this bound; until then, all moves
// must be below upper. The iterator keeps upper.
func (it *Iter) SeekWithin(lower, upper []byte) bool {
	if !it.within {
		it.within, it.upper = true, it.opts.Upper
	}
	if it.opts.Upper = upper; it.upper != nil && bytes.Compare(it.upper, upper) < 0 {
		it.opts.Upper = it.upper
	}
	if it.loaded && !it.setInside() {
		return false
	}
	return it.SeekGE(lower)
}
