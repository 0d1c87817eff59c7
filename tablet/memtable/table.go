package memtable

import (
	"bytes"
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// ErrFull means that no further chunk can be allocated: the table has 4 GiB of keys or of values,
// or 4,096 entries larger than a chunk.
var ErrFull = errors.New("memtable full")

// BytesMax is the maximum size of a table's keys, and of its values, in bytes: the maximum number
// of chunks of the usual size. Entries larger than a chunk can exceed it.
const BytesMax = chunksMax * chunkWordsMax * wordBytes

// A node is, in words: key length and height, one link per level, the bytes of the key, the ref of
// the value and its length. A search needs all but the last two, so it touches few cache lines.
// Values are in an arena of their own, so a search touches some megabytes of nodes instead of the
// whole table: 0.90 µs instead of 1.35 µs in a table of 65,536 values of 1,000 bytes.
const (
	nodeHead  = 0
	nodeLinks = 1
	valueRef  = 0 // after the key
	valueLen  = 1
	valueInfo = 2 // words of valueRef and valueLen

	keyLenMax  = 1<<(32-heightBits) - 1
	heightBits = 4
	heightMask = 1<<heightBits - 1
	heightMax  = 14 // for 4^14 entries: a quarter of the nodes goes up at each level
)

// Table is a memtable. The zero value is not usable: see New.
type Table struct {
	arena  arena // nodes
	values arena
	head   ref
	height atomic.Int32
	count  atomic.Int64
	// largest is the size of the largest value, in bytes.
	largest atomic.Int64

	// splice is the place of the last insertion, near which the next one often is. Only the adding
	// goroutine uses it.
	splice [heightMax]splice
}

// splice is a pair of neighbours at a level.
type splice struct{ prev, next ref }

// New returns an empty table of half a KiB.
func New() *Table {
	t := &Table{}
	t.head, _ = t.arena.alloc(nodeLinks + heightMax + valueInfo)
	c, off := t.arena.at(t.head)
	c.words[off+nodeHead] = heightMax
	t.height.Store(1)
	for i := range t.splice {
		t.splice[i].prev = t.head
	}
	return t
}

// Len returns the number of entries.
func (t *Table) Len() int { return int(t.count.Load()) }

// Largest returns the size of the largest value, in bytes.
func (t *Table) Largest() int64 { return t.largest.Load() }

// Bytes returns the allocated memory, in bytes.
func (t *Table) Bytes() int64 { return t.arena.bytes.Load() + t.values.bytes.Load() }

// Add inserts a copy of key and value. Keys are unique, because each ends in its sequence number.
// If the table has the key already, Add keeps the existing entry and returns false: recovery may
// replay commits that the table has. The error is ErrFull. Only one goroutine may add at a time.
func (t *Table) Add(key, value []byte) (bool, error) {
	if found := t.seekSplice(key); found {
		return false, nil
	}
	if len(key) > keyLenMax {
		return false, ErrFull
	}
	height := randomHeight()
	at, ok := t.addValue(value)
	if !ok {
		return false, ErrFull
	}
	node, ok := t.arena.alloc(nodeLinks + height + words(len(key)) + valueInfo)
	if !ok {
		return false, ErrFull
	}
	c, off := t.arena.at(node)
	c.words[off+nodeHead] = uint32(len(key))<<heightBits | uint32(height)
	copy(c.bytes[(off+nodeLinks+height)*wordBytes:], key)
	info := c.words[off+nodeLinks+height+words(len(key)):]
	info[valueRef], info[valueLen] = uint32(at), uint32(len(value))
	if int32(height) > t.height.Load() {
		t.height.Store(int32(height))
	}
	for level := range height {
		s := &t.splice[level]
		c.words[off+nodeLinks+level] = uint32(s.next)
		pc, poff := t.arena.at(s.prev)
		atomic.StoreUint32(&pc.words[poff+nodeLinks+level], uint32(node))
		s.prev = node
	}
	t.count.Add(1)
	return true, nil
}

// addValue copies a value into the arena of values.
func (t *Table) addValue(value []byte) (ref, bool) {
	if len(value) == 0 {
		return 0, true
	}
	at, ok := t.values.alloc(words(len(value)))
	if ok {
		c, off := t.values.at(at)
		copy(c.bytes[off*wordBytes:], value)
		if n := int64(len(value)); n > t.largest.Load() { // only one goroutine adds
			t.largest.Store(n)
		}
	}
	return at, ok
}

// words returns how many words n bytes need.
func words(n int) int { return (n + wordBytes - 1) / wordBytes }

// seekSplice sets splice[level] to the neighbours of key at each level and reports whether the
// table has the key. It keeps the last insertion's neighbours where they still enclose key: at
// level 0 for keys in order, otherwise at the upper levels.
func (t *Table) seekSplice(key []byte) bool {
	n := t.nodes()
	height := int(t.height.Load())
	prev, bound, level := t.head, ref(0), height-1
	if t.encloses(n, t.splice[0], key) {
		bound, level = t.splice[0].next, -1
	}
	for ; level >= 0 && t.encloses(n, t.splice[level], key); level-- {
		prev, bound = t.splice[level].prev, t.splice[level].next
	}
	found := bound != 0 && bytes.Equal(n.key(bound), key)
	for ; level >= 0; level-- {
		next := n.next(prev, level)
		for next != bound {
			c := bytes.Compare(n.key(next), key)
			if c >= 0 {
				found = found || c == 0
				break
			}
			prev, next = next, n.next(next, level)
		}
		bound = next
		t.splice[level] = splice{prev, next}
	}
	return found
}

// encloses reports whether key is between two neighbours, or equal to the second.
func (t *Table) encloses(n nodes, s splice, key []byte) bool {
	return (s.prev == t.head || bytes.Compare(n.key(s.prev), key) < 0) && (s.next == 0 || bytes.Compare(key, n.key(s.next)) <= 0)
}

// seek returns the last node with a key < key, or 0, and the first node with a key >= key, or 0.
func (t *Table) seek(key []byte) (before, at ref) {
	n, prev := t.nodes(), t.head
	var bound ref // a node known to be >= key, which is not compared again
	for level := int(t.height.Load()) - 1; level >= 0; level-- {
		next := n.next(prev, level)
		for next != bound {
			if !n.has(next) {
				n = t.nodes()
			}
			if bytes.Compare(n.key(next), key) >= 0 {
				break
			}
			prev, next = next, n.next(next, level)
		}
		bound = next
	}
	if prev == t.head {
		prev = 0
	}
	return prev, bound
}

// last returns the last node, or 0.
func (t *Table) last() ref {
	n, prev := t.nodes(), t.head
	for level := int(t.height.Load()) - 1; level >= 0; level-- {
		for next := n.next(prev, level); next != 0; next = n.next(next, level) {
			if !n.has(next) {
				n = t.nodes()
			}
			prev = next
		}
	}
	if prev == t.head {
		return 0
	}
	return prev
}

// nodes is a snapshot of an arena's chunks. It has all nodes that existed at the time, but perhaps
// not those linked to them later.
type nodes []chunk

func (t *Table) nodes() nodes { return *t.arena.chunks.Load() }

func (n nodes) has(node ref) bool { return int(node>>offsetBits) < len(n) }

func (n nodes) next(node ref, level int) ref {
	return ref(atomic.LoadUint32(&n[node>>offsetBits].words[int(node&offsetMask)+nodeLinks+level]))
}

func (n nodes) key(node ref) []byte {
	c, off := &n[node>>offsetBits], int(node&offsetMask)
	head := c.words[off+nodeHead]
	start := (off + nodeLinks + int(head&heightMask)) * wordBytes
	end := start + int(head>>heightBits)
	return c.bytes[start:end:end]
}

func (t *Table) value(node ref) []byte {
	c, off := t.arena.at(node)
	head := c.words[off+nodeHead]
	info := c.words[off+nodeLinks+int(head&heightMask)+words(int(head>>heightBits)):]
	n := int(info[valueLen])
	if n == 0 {
		return nil
	}
	v, at := t.values.at(ref(info[valueRef]))
	start := at * wordBytes
	return v.bytes[start : start+n : start+n]
}

// randomHeight returns h with probability 3/4 · (1/4)^(h-1).
func randomHeight() int {
	zeros := bits.TrailingZeros64(rand.Uint64() | 1<<(2*(heightMax-1)))
	return 1 + zeros/2
}
