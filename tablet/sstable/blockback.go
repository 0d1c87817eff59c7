package sstable

import "bytes"

// placesMax bounds the entries of a restart interval that are stepped over backward by their places.
// Intervals have 16 entries by default. In larger ones each step reads the interval again.
const placesMax = 64

// places are the places of the entries of one restart interval of a block. Reading backward within it
// needs no second pass over the interval.
type places struct {
	restart int // the interval's
	n       int // entries
	at      int // the entry that was found last
	keys    [placesMax]uint32
	values  [placesMax]uint32
}

// seekLT moves to the last entry with a key < target; nil is above all keys. It returns false if there is
// none, and sets bad if the block is malformed. target must not alias the key.
func (it *blockIter) seekLT(target []byte) bool {
	it.key, it.value, it.valid = nil, nil, false
	if it.b.entries == 0 {
		return false
	}
	r, ok := it.intervalBelow(target)
	if !ok {
		return it.fail()
	}
	if r < 0 {
		return false
	}
	it.restart = r
	if !it.placed || it.back.restart != r {
		if !it.place(r) {
			return it.fail()
		}
	}
	if it.back.n > placesMax {
		return it.walkLT(target)
	}
	i, ok := it.lastPlaceLT(target)
	return ok && it.moveToPlace(i)
}

// intervalBelow returns the last restart whose key is < target, or -1. It tries the one at the iterator
// and the previous one first.
func (it *blockIter) intervalBelow(target []byte) (r int, ok bool) {
	n := it.b.numRestarts()
	if target == nil {
		return n - 1, true
	}
	above := n // a restart whose key is >= target
	for r := it.restart; r >= max(0, it.restart-1); r-- {
		key, ok := it.b.wholeKey(r)
		if !ok {
			return 0, false
		}
		if bytes.Compare(key, target) >= 0 {
			above = r
			continue
		}
		if above == r+1 {
			return r, true
		}
		if key, ok = it.b.wholeKey(r + 1); !ok {
			return 0, false
		}
		if bytes.Compare(key, target) >= 0 {
			return r, true
		}
		return it.b.lastLT(target, r+1, n)
	}
	return it.b.lastLT(target, 0, above)
}

// place sets back to the places of an interval. It returns false if the interval is malformed.
func (it *blockIter) place(r int) bool {
	b := &it.b
	if it.back == nil {
		it.back = new(places)
	}
	p, end := it.back, len(b.keys)
	p.restart, p.n, p.at = r, 0, 0
	if r+1 < b.numRestarts() {
		end, _ = b.restart(r + 1)
	}
	keyOff, valueOff := b.restart(r)
	length := 0 // of the previous key
	for keyOff < end {
		e, ok := b.decodeEntry(keyOff)
		if !ok || e.shared > length || valueOff > len(b.values) || e.value > len(b.values)-valueOff {
			return false
		}
		if p.n < placesMax {
			p.keys[p.n], p.values[p.n] = uint32(keyOff), uint32(valueOff)
		}
		p.n++
		length = e.shared + e.unshared
		keyOff, valueOff = e.next+e.unshared, valueOff+e.value
	}
	it.placed = true
	return p.n > 0
}

// lastPlaceLT returns the last entry of the placed interval with a key < target. The key of its first
// entry is. It sets key.
func (it *blockIter) lastPlaceLT(target []byte) (i int, ok bool) {
	p := it.back
	if target == nil {
		return p.n - 1, it.keyOfPlace(p.n - 1)
	}
	i = min(p.at, p.n-1)
	if !it.keyOfPlace(i) {
		return 0, it.fail()
	}
	if bytes.Compare(it.key, target) >= 0 {
		for i--; i >= 0; i-- {
			if !it.keyOfPlace(i) {
				return 0, it.fail()
			}
			if bytes.Compare(it.key, target) < 0 {
				return i, true
			}
		}
		return 0, it.fail() // the keys are not in order
	}
	for i+1 < p.n {
		if !it.keyOfPlace(i + 1) {
			return 0, it.fail()
		}
		if bytes.Compare(it.key, target) >= 0 {
			return i, it.keyOfPlace(i)
		}
		i++
	}
	return i, true
}

// keyOfPlace sets key to that of an entry of the placed interval. Its prefix is in the entries before
// it, back to one that shares less with its own predecessor. ok is false if the entries are malformed.
func (it *blockIter) keyOfPlace(i int) bool {
	b, p := &it.b, it.back
	e, ok := b.decodeEntry(int(p.keys[i]))
	if !ok {
		return false
	}
	if e.shared == 0 {
		end := e.next + e.unshared
		it.key = b.keys[e.next:end:end]
		return true
	}
	n := e.shared + e.unshared
	if cap(it.buf) < n {
		it.buf = make([]byte, n, 2*n)
	}
	it.buf = it.buf[:n]
	copy(it.buf[e.shared:], b.keys[e.next:e.next+e.unshared])
	for need := e.shared; need > 0; {
		if i--; i < 0 {
			return false
		}
		if e, ok = b.decodeEntry(int(p.keys[i])); !ok {
			return false
		}
		if e.shared < need {
			copy(it.buf[e.shared:need], b.keys[e.next:e.next+e.unshared])
			need = e.shared
		}
	}
	it.key = it.buf
	return true
}

// moveToPlace moves to an entry of the placed interval, whose key is set.
func (it *blockIter) moveToPlace(i int) bool {
	p := it.back
	e, ok := it.b.decodeEntry(int(p.keys[i]))
	if !ok {
		return it.fail()
	}
	p.at = i
	it.valueOff = int(p.values[i])
	it.take(e)
	return true
}

// seekBack is seekGE for an iterator that seekLT has moved since the block was loaded. It moves to the
// first entry with a key >= target within the placed interval, if that is certain to have it.
func (it *blockIter) seekBack(target []byte) bool {
	if !it.placed || it.back.n > placesMax {
		return it.seekGE(target, 0)
	}
	r := it.back.restart
	if key, ok := it.b.wholeKey(r); !ok || bytes.Compare(key, target) >= 0 {
		return it.seekGE(target, 0)
	}
	if r+1 < it.b.numRestarts() {
		if key, ok := it.b.wholeKey(r + 1); !ok || bytes.Compare(key, target) < 0 {
			return it.seekGE(target, 0)
		}
	}
	i, ok := it.lastPlaceLT(target)
	if !ok {
		return it.fail()
	}
	if i+1 == it.back.n {
		return it.seekGE(target, 0)
	}
	it.restart = r
	if !it.keyOfPlace(i + 1) {
		return it.fail()
	}
	return it.moveToPlace(i + 1)
}

// walkLT is seekLT in an interval that has too many entries for their places.
func (it *blockIter) walkLT(target []byte) bool {
	steps := 0
	for pass := range 2 {
		it.key, it.valid = nil, false
		it.keyOff, it.valueOff = it.b.restart(it.back.restart)
		if it.valueOff > len(it.b.values) {
			return it.fail()
		}
		for n := 0; n < it.back.n && (pass == 0 || n < steps); n++ {
			if !it.next() {
				return it.fail()
			}
			if pass == 0 {
				if target != nil && bytes.Compare(it.key, target) >= 0 {
					break
				}
				steps = n + 1
			}
		}
	}
	return it.valid
}

// lastLT returns the last restart in [lo, hi) whose key is < target, or lo-1 if there is none. ok is
// false if the block is malformed.
func (b *block) lastLT(target []byte, lo, hi int) (r int, ok bool) {
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		key, ok := b.wholeKey(mid)
		if !ok {
			return 0, false
		}
		if bytes.Compare(key, target) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1, true
}
