package sstable

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

const (
	// entriesBytesMax bounds what the scan cache keeps of one prefix. 32 KiB: half of a block. What is
	// larger is read from blocks.
	entriesBytesMax = 32 << 10
	// entriesShareMax is the part of the cache's budget that one may have.
	entriesShareMax = 64
)

// doorkeeper remembers what was asked for lately, so that what is asked for once is not copied. It is wrong about one in two
// at most, and forgets all then.
type doorkeeper struct {
	bits []atomic.Uint32
	set  atomic.Int64
}

// The bits of a doorkeeper: one for so many bytes of budget, and so many at least and at most.
const (
	doorBytes = 1 << 10
	doorLeast = 1 << 10
	doorMost  = 1 << 22
)

func newDoorkeeper(budget int64) *doorkeeper {
	n := int64(doorLeast)
	for n < min(budget/doorBytes, doorMost) {
		n *= 2
	}
	return &doorkeeper{bits: make([]atomic.Uint32, n/32)}
}

// again tells whether a hash was asked about before.
func (d *doorkeeper) again(hash uint64) bool {
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

// Entries are the entries of a table whose keys begin with one prefix, in the order of keys. They never change.
type Entries struct{ p []byte }

// The first byte of entries in the cache; prefix and entries follow, each after its length.
const (
	entriesWhole = iota
	entriesTooLarge
)

// Empty tells that there are none.
func (e Entries) Empty() bool { return len(e.p) == 0 }

// Entries returns the entries whose keys begin with prefix if the scan cache has them; otherwise an iterator finds them, and
// Iter.Keep may have them kept. (Paper §6, "Caching for read performance".)
func (t *Table) Entries(prefix []byte) (e Entries, ok bool) {
	if t.cache == nil || !t.kept.any.Load() { // a look-up costs as much as that of a block
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

// Keep has the scan cache keep the entries whose keys begin with prefix if it is worth it: if the iterator did not find
// their blocks in memory, and they have been asked for before, lately. It moves the iterator.
func (it *Iter) Keep(prefix []byte) {
	c := it.t.cache
	if c == nil || !it.missed || it.err != nil {
		return
	}
	hash := xxhash.Sum64(prefix)
	if !c.door.again(mix(hash ^ it.t.num)) {
		return
	}
	if p, ok := it.collect(prefix); ok {
		key := it.t.entriesKey(hash)
		it.t.kept.add(key.off)
		c.rows.Set(key, p)
	}
}

// keptMost bounds keptEntries: what is kept beyond stays when the file goes, until it is evicted.
const keptMost = 1 << 12

// keptEntries are the places in the cache that a table's entries have, or had lately.
type keptEntries struct {
	any atomic.Bool // there were some

	// mu guards what follows. Never held across I/O.
	mu   sync.Mutex
	offs []int64
	next int // the oldest, when there are keptMost
}

func (k *keptEntries) add(off int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.any.Store(true)
	if len(k.offs) < keptMost {
		k.offs = append(k.offs, off)
		return
	}
	k.offs[k.next] = off
	k.next = (k.next + 1) % keptMost
}

// take returns them all, and forgets them.
func (k *keptEntries) take() []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	offs := k.offs
	k.offs, k.next = nil, 0
	return offs
}

// entriesOfPrefix returns what follows the prefix in cached entries; false if they are of another prefix.
func entriesOfPrefix(p, prefix []byte) ([]byte, bool) {
	n, size := binary.Uvarint(p[1:])
	p = p[1+size:]
	if !bytes.Equal(p[:n], prefix) {
		return nil, false
	}
	return p[n:], true
}

// collect copies the entries of a prefix, or tells by its first byte that there are too many.
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

// appendPrefix begins entries for the cache, in new memory for size bytes.
func appendPrefix(first byte, prefix []byte, size int) []byte {
	p := append(make([]byte, 0, max(size, 1+binary.MaxVarintLen64+len(prefix))), first)
	return append(binary.AppendUvarint(p, uint64(len(prefix))), prefix...)
}

// EntriesIter walks over entries. Keys and values are good for as long as they are kept. It is for one goroutine at a time; the zero
// value stands nowhere.
type EntriesIter struct {
	all, rest  []byte
	key, value []byte
}

// Reset has the iterator walk over e.
func (it *EntriesIter) Reset(e Entries) { *it = EntriesIter{all: e.p} }

// First moves to the first entry; false if there is none.
func (it *EntriesIter) First() bool {
	it.rest = it.all
	return it.Next()
}

// Next moves to the next entry; false at the end.
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

// SeekGE moves to the first entry whose key is at or above key, forward or back; false if there is none.
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

// Err returns nil: what is cached can be read.
func (it *EntriesIter) Err() error { return nil }
