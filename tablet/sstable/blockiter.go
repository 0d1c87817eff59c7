package sstable

import "bytes"

// blockIter walks over the entries of one block. The zero value is at the
// end of no block.
type blockIter struct {
	b        block
	keyOff   int // of the next entry
	valueOff int // of the next entry's value
	restart  int // restart at or before the current entry, as far as known
	key      []byte
	value    []byte
	buf      []byte // holds key when the block does not hold it whole
	valid    bool
	bad      bool // the block is malformed
}

// reset puts the iterator before the first entry of the map block p. It
// returns errBlock if p is malformed.
func (it *blockIter) reset(p []byte) error {
	it.keyOff, it.valueOff, it.restart = 0, 0, 0
	it.key, it.value = nil, nil
	it.valid, it.bad = false, false
	return it.b.parse(p)
}

func (it *blockIter) fail() bool {
	it.valid, it.bad = false, true
	it.key, it.value = nil, nil
	return false
}

// next moves to the next entry. It returns false at the end, and with bad
// set if the block is malformed there.
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

// setKey makes prefix+suffix the key. prefix may be the start of the key
// that is there, in buf or in the block.
func (it *blockIter) setKey(prefix, suffix []byte) {
	it.buf = append(append(it.buf[:0], prefix...), suffix...)
	it.key = it.buf
}

// take makes e, whose key is set and whose value fits, the current entry.
func (it *blockIter) take(e entry) {
	end := it.valueOff + e.value
	it.value = it.b.values[it.valueOff:end:end]
	it.keyOff, it.valueOff = e.next+e.unshared, end
	it.valid = true
}

// seekGE moves to the first entry at or above target. from is a restart
// whose key is known to be at or below target, or 0.
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

// scanGE moves forward from the next entry on to the first at or above
// target. The key before that entry, if it is not a whole one, has its first
// matched bytes in common with target and is below it.
//
// Keys that are passed over are not put together: the lengths they share
// with their neighbours say enough. If an entry shares more with the key
// before it than that key shares with target, it is below target like that
// key, at the same byte. If it shares less, it is above that key at a byte
// where that key and target agree, so it is above target. Only when both
// are equal are bytes compared. A whole key is compared from its first byte,
// since its shared length is 0 by rule and says nothing.
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

// seekForward is seekGE for an iterator that stands on an entry below
// target: it does not look at what lies before.
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
