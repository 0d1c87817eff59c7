package sstable

import "bytes"

// blockIter iterates over the entries of a block. The zero value is at the end of an empty block.
type blockIter struct {
	b        block
	keyOff   int // of the next entry
	valueOff int // of the next entry's value
	restart  int // a restart at or before the current entry
	key      []byte
	value    []byte
	buf      []byte // backs key if the block does not have it complete
	valid    bool
	bad      bool // the block is malformed
	placed   bool // back is of this block
	back     *places
}

// reset positions the iterator before the first entry of the map block p. It returns errBlock if p
// is malformed.
func (it *blockIter) reset(p []byte) error {
	it.keyOff, it.valueOff, it.restart = 0, 0, 0
	it.key, it.value = nil, nil
	it.valid, it.bad, it.placed = false, false, false
	return it.b.parse(p)
}

func (it *blockIter) fail() bool {
	it.valid, it.bad = false, true
	it.key, it.value = nil, nil
	return false
}

// next moves to the next entry. It returns false at the end, and sets bad if the block is malformed
// there.
func (it *blockIter) next() bool {
	b := &it.b
	if it.keyOff == len(b.keys) {
		it.key, it.value, it.valid = nil, nil, false
		if it.valueOff != len(b.values) {
			return it.fail()
		}
		return false
	}
	e, ok := b.decodeEntry(it.keyOff)
	if !ok || e.shared > len(it.key) || e.value > len(b.values)-it.valueOff {
		return it.fail()
	}
	end := e.next + e.unshared
	if e.shared == 0 {
		it.key = b.keys[e.next:end:end]
	} else {
		it.setKey(it.key[:e.shared], b.keys[e.next:end])
	}
	it.take(e)
	return true
}

// setKey sets the key to prefix+suffix. prefix may alias the current key, in buf or in the block.
func (it *blockIter) setKey(prefix, suffix []byte) {
	it.buf = append(append(it.buf[:0], prefix...), suffix...)
	it.key = it.buf
}

// take makes e the current entry. Its key must be set, and its value must fit the block.
func (it *blockIter) take(e entry) {
	end := it.valueOff + e.value
	it.value = it.b.values[it.valueOff:end:end]
	it.keyOff, it.valueOff = e.next+e.unshared, end
	it.valid = true
}

// seekGE moves to the first entry with a key >= target. from is a restart whose key is known to be
// <= target, or 0.
func (it *blockIter) seekGE(target []byte, from int) bool {
	b := &it.b
	if b.entries == 0 {
		it.key, it.value, it.valid = nil, nil, false
		return false
	}
	r, ok := b.lastLE(target, from+1, b.numRestarts())
	if !ok {
		return it.fail()
	}
	it.restart = r
	it.keyOff, it.valueOff = b.restart(r)
	if it.valueOff > len(b.values) {
		return it.fail()
	}
	return it.scanGE(target, 0)
}

// scanGE moves forward, starting with the next entry, to the first key >= target. The previous key,
// unless the next one is complete, shares its first matched bytes with target and is below it.
//
// Skipped keys are not assembled: shared lengths are enough to order them. If an entry shares more
// with the previous key than that key shares with target, it differs from target at the same byte
// and is below it too. If it shares less, it is above the previous key at a byte where that key and
// target agree, so it is above target. Only if both are equal are bytes compared. A complete key is
// compared from its first byte, because its shared length is 0 by definition.
func (it *blockIter) scanGE(target []byte, matched int) bool {
	b := &it.b
	for it.keyOff < len(b.keys) {
		e, ok := b.decodeEntry(it.keyOff)
		if !ok || e.value > len(b.values)-it.valueOff {
			return it.fail()
		}
		end := e.next + e.unshared
		if e.shared == 0 {
			matched = 0
		}
		if e.shared <= matched {
			suffix := b.keys[e.next:end:end]
			above := e.shared < matched
			if !above {
				rest := target[matched:]
				n := commonPrefix(suffix, rest)
				above = n == len(rest) || n < len(suffix) && suffix[n] > rest[n]
				matched += n
			}
			if above {
				if e.shared == 0 {
					it.key = suffix
				} else {
					it.setKey(target[:e.shared], suffix)
				}
				it.take(e)
				return true
			}
		}
		it.keyOff = end
		it.valueOff += e.value
	}
	it.key, it.value, it.valid = nil, nil, false
	return false
}

// seekForward is seekGE for an iterator at an entry below target. It does not search earlier
// entries.
func (it *blockIter) seekForward(target []byte) bool {
	next := it.nextRestart()
	if next < it.b.numRestarts() {
		key, ok := it.b.wholeKey(next)
		if !ok {
			return it.fail()
		}
		if bytes.Compare(key, target) <= 0 {
			return it.seekGE(target, next)
		}
	}
	return it.scanGE(target, commonPrefix(it.key, target))
}

// nextRestart returns the first restart after the current entry.
func (it *blockIter) nextRestart() int {
	n := it.b.numRestarts()
	r := it.restart
	for r < n {
		if off, _ := it.b.restart(r); off >= it.keyOff {
			break
		}
		r++
	}
	it.restart = max(r-1, 0)
	return r
}
