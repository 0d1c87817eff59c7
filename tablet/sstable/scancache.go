package sstable

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

const (
	// entriesBytesMax bounds what the scan cache stores for one prefix. 32 KiB: half of a block.
	// Larger rows are read from blocks.
	entriesBytesMax = 32 << 10
	// entriesShareMax is the divisor of the cache's budget for one prefix.
	entriesShareMax = 64
)

// doorkeeper records recent requests, so that entries requested only once are not copied. It is a
// hash bitmap: at most half of its bits are set, which bounds false positives, and then all are
// cleared.
type doorkeeper struct {
	bits []atomic.Uint32
	set  atomic.Int64
}

// Size of a doorkeeper: bytes of budget per bit, and the limits in bits.
const (
	doorBytes   = 1 << 10
	doorBitsMin = 1 << 10
	doorBitsMax = 1 << 22
)

func newDoorkeeper(budget int64) *doorkeeper {
	n := int64(doorBitsMin)
	for n < min(budget/doorBytes, doorBitsMax) {
		n *= 2
	}
	return &doorkeeper{bits: make([]atomic.Uint32, n/32)}
}

// seen reports whether a hash was requested before.
func (d *doorkeeper) seen(hash uint64) bool {
	at := hash % uint64(len(d.bits)*32)
	word, bit := &d.bits[at/32], uint32(1)<<(at%32)
	if word.Load()&bit != 0 || word.Or(bit)&bit != 0 {
		return true
	}
	if d.set.Add(1) > int64(len(d.bits)*16) {
		d.set.Store(0)
		for i := range d.bits {
			d.bits[i].Store(0)
		}
	}
	return false
}

// Entries are the entries of a table whose keys begin with one prefix, in key order. They never
// change.
type Entries struct{ p []byte }

// First byte of cached entries. The prefix, with its length, and the entries follow.
const (
	entriesWhole = iota
	entriesTooLarge
)

// Empty reports whether there are no entries.
func (e Entries) Empty() bool { return len(e.p) == 0 }

// Entries returns the entries whose keys begin with prefix if the scan cache has them. Otherwise
// the caller reads them with an iterator and may cache them with Iter.Keep. (Paper §6, "Caching for
// read performance".)
func (t *Table) Entries(prefix []byte) (e Entries, ok bool) {
	if t.cache == nil || !t.kept.any.Load() { // saves a lookup as expensive as that of a block
		return e, false
	}
	p, ok := t.cache.rows.GetIfPresent(t.entriesKey(xxhash.Sum64(prefix)))
	if !ok {
		return e, false
	}
	rest, found := entriesOfPrefix(p, prefix)
	return Entries{rest}, found && p[0] == entriesWhole
}

func (t *Table) entriesKey(hash uint64) cacheKey { return cacheKey{t.num, int64(hash)} }

// Keep adds the entries whose keys begin with prefix to the scan cache, if the iterator has missed
// a block in memory and the prefix was requested before, recently. It moves the iterator.
func (it *Iter) Keep(prefix []byte) {
	c := it.t.cache
	if c == nil || !it.missed || it.err != nil {
		return
	}
	hash := xxhash.Sum64(prefix)
	if !c.door.seen(mix(hash ^ it.t.num)) {
		return
	}
	if p, ok := it.collect(prefix); ok {
		key := it.t.entriesKey(hash)
		it.t.kept.add(key.off)
		c.rows.Set(key, p)
	}
}

// keptMax bounds keptEntries. Entries beyond it stay in the cache after the file is deleted, until
// they are evicted.
const keptMax = 1 << 12

// keptEntries has the cache keys of a table's entries.
type keptEntries struct {
	any atomic.Bool // entries were cached

	// mu guards the fields below. Never held across I/O.
	mu   sync.Mutex
	offs []int64
	next int // index of the oldest, if there are keptMax
}

func (k *keptEntries) add(off int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.any.Store(true)
	if len(k.offs) < keptMax {
		k.offs = append(k.offs, off)
		return
	}
	k.offs[k.next] = off
	k.next = (k.next + 1) % keptMax
}

// take returns all keys and forgets them.
func (k *keptEntries) take() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	offs := k.offs
	k.offs, k.next = nil, 0
	return offs
}

// entriesOfPrefix returns what follows the prefix in cached entries; false if their prefix differs.
func entriesOfPrefix(p, prefix []byte) ([]byte, bool) {
	n, size := binary.Uvarint(p[1:])
	p = p[1+size:]
	if !bytes.Equal(p[:n], prefix) {
		return nil, false
	}
	return p[n:], true
}

// collect copies the entries of a prefix. If they are too large, it returns a marker without
// entries.
func (it *Iter) collect(prefix []byte) ([]byte, bool) {
	most := min(entriesBytesMax, int(it.t.cache.budget.Load()/entriesShareMax))
	n := 1 + binary.MaxVarintLen64 + len(prefix)
	for ok := it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		if n += 2*binary.MaxVarintLen32 + len(it.Key()) + len(it.Value()); n > most {
			return appendPrefix(entriesTooLarge, prefix, 0), true
		}
	}
	p := appendPrefix(entriesWhole, prefix, n)
	for ok := it.err == nil && it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		key, value := it.Key(), it.Value()
		p = binary.AppendUvarint(binary.AppendUvarint(p, uint64(len(key))), uint64(len(value)))
		p = append(append(p, key...), value...)
	}
	return p, it.err == nil
}

// appendPrefix starts a cache value in new memory with a capacity of size bytes.
func appendPrefix(first byte, prefix []byte, size int) []byte {
	p := append(make([]byte, 0, max(size, 1+binary.MaxVarintLen64+len(prefix))), first)
	return append(binary.AppendUvarint(p, uint64(len(prefix))), prefix...)
}

// EntriesIter iterates over Entries. Keys and values stay valid as long as they are referenced. It
// must be used by one goroutine at a time. The zero value has no position.
type EntriesIter struct {
	all, rest  []byte
	key, value []byte
}

// Reset makes the iterator iterate over e.
func (it *EntriesIter) Reset(e Entries) { *it = EntriesIter{all: e.p} }

// First moves to the first entry. It returns false if there is none.
func (it *EntriesIter) First() bool {
	it.rest = it.all
	return it.Next()
}

// Next moves to the next entry. It returns false at the end.
func (it *EntriesIter) Next() bool {
	if len(it.rest) == 0 {
		it.key, it.value = nil, nil
		return false
	}
	k, n := binary.Uvarint(it.rest)
	v, m := binary.Uvarint(it.rest[n:])
	p := it.rest[n+m:]
	it.key, it.value, it.rest = p[:k:k], p[k:k+v:k+v], p[k+v:]
	return true
}

// SeekGE moves to the first entry with a key >= key, forward or backward. It returns false if there
// is none.
func (it *EntriesIter) SeekGE(key []byte) bool {
	if it.key == nil || bytes.Compare(it.key, key) > 0 {
		if !it.First() {
			return false
		}
	}
	for bytes.Compare(it.key, key) < 0 {
		if !it.Next() {
			return false
		}
	}
	return true
}

// Key returns the key of the entry; nil at the end.
func (it *EntriesIter) Key() []byte { return it.key }

// Value returns the value of the entry; nil at the end.
func (it *EntriesIter) Value() []byte { return it.value }

// Err returns nil: cached entries are always readable.
func (it *EntriesIter) Err() error { return nil }
