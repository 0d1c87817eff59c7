package sstable

import "bytes"

// placesMax bounds the entries of a restart interval whose places are kept, and placesBytesMax their keys,
// in bytes. Intervals have 16 entries by default. In larger ones each step backward reads the interval
// again.
const (
	placesMax      = 64
	placesBytesMax = 64 << 10
)

// places has the keys and places of the entries of one restart interval of a block. Reading backward within
// it needs no second pass over the interval.
type places struct {
	restart int // the interval's
	n       int // entries; more than placesMax: there are too many
	at      int // the entry that was found last
	keys    []byte
	// By entry: where its key ends in keys, and the offsets of the entry and its value. One more has those
	// of the next interval.
	ends    [placesMax]uint32
	entries [placesMax + 1]uint32
	values  [placesMax + 1]uint32
}

// key returns the key of an entry.
func (p *places) key(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = p.ends[i-1]
	}
	return p.keys[start:p.ends[i]:p.ends[i]]
}

// lastLT returns the last entry with a key < target. It begins at the entry that was found last. ok is false
// if there is none. If it is the last of all, later intervals may have others.
func (p *places) lastLT(target []byte) (i int, ok bool) {
	if target == nil {
		return p.n - 1, true
	}
	i = min(p.at, p.n-1)
	for i >= 0 && bytes.Compare(p.key(i), target) >= 0 {
		i--
	}
	if i < p.at {
		return i, i >= 0
	}
	for i+1 < p.n && bytes.Compare(p.key(i+1), target) < 0 {
		i++
	}
	return i, true
}

// seekLT moves to the last entry with a key < target; nil is above all keys. It returns false if there is
// none, and sets bad if the block is malformed. target must not alias the key.
func (it *blockIter) seekLT(target []byte) bool {
	it.key, it.value, it.valid = nil, nil, false
	if it.b.entries == 0 {
		return false
	}
	if it.placed && it.back.n <= placesMax && target != nil {
		if i, ok := it.back.lastLT(target); ok && i+1 < it.back.n {
			it.moveToPlace(i)
			return true
		}
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
	i, ok := it.back.lastLT(target)
	if !ok {
		return it.fail() // the keys are not in order
	}
	it.moveToPlace(i)
	return true
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
	p.restart, p.n, p.at, p.keys, it.placed = r, 0, placesMax, p.keys[:0], false
	if r+1 < b.numRestarts() {
		end, _ = b.restart(r + 1)
	}
	keyOff, valueOff := b.restart(r)
	start, length := 0, 0 // of the previous key
	for keyOff < end {
		e, ok := b.decodeEntry(keyOff)
		if !ok || e.shared > length || valueOff > len(b.values) || e.value > len(b.values)-valueOff {
			return false
		}
		if p.n >= placesMax || len(p.keys)+e.shared+e.unshared > placesBytesMax {
			p.n, it.placed = placesMax+1, true
			return true
		}
		p.entries[p.n], p.values[p.n] = uint32(keyOff), uint32(valueOff)
		next := len(p.keys)
		p.keys = append(append(p.keys, p.keys[start:start+e.shared]...), b.keys[e.next:e.next+e.unshared]...)
		start, length = next, e.shared+e.unshared
		p.ends[p.n] = uint32(len(p.keys))
		p.n++
		keyOff, valueOff = e.next+e.unshared, valueOff+e.value
	}
	p.entries[p.n], p.values[p.n] = uint32(keyOff), uint32(valueOff)
	it.placed = true
	return p.n > 0
}

// moveToPlace moves to an entry of the placed interval.
func (it *blockIter) moveToPlace(i int) {
	p := it.back
	p.at = i
	it.restart, it.key = p.restart, p.key(i)
	start, end := p.values[i], p.values[i+1]
	it.value = it.b.values[start:end:end]
	it.keyOff, it.valueOff = int(p.entries[i+1]), int(end)
	it.valid = true
}

// seekBack is seekGE for an entry that may be in the placed interval.
func (it *blockIter) seekBack(target []byte) bool {
	if it.placed && it.back.n <= placesMax {
		if i, ok := it.back.lastLT(target); ok && i+1 < it.back.n {
			it.moveToPlace(i + 1)
			return true
		}
	}
	return it.seekGE(target, 0)
}

// walkLT is seekLT in an interval that has too many entries for their places.
func (it *blockIter) walkLT(target []byte) bool {
	steps, end := 0, len(it.b.keys) // end is where the interval ends
	if r := it.back.restart; r+1 < it.b.numRestarts() {
		end, _ = it.b.restart(r + 1)
	}
	for pass := range 2 { // to find the entry, and to move to it
		it.key, it.valid = nil, false
		it.keyOff, it.valueOff = it.b.restart(it.back.restart)
		if it.valueOff > len(it.b.values) {
			return it.fail()
		}
		for n := 0; pass == 0 || n < steps; n++ {
			if pass == 0 && it.keyOff == end {
				break
			}
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
