package memtable

import "bytes"

// Iter iterates over a table's entries in key order. It sees all entries that existed when it was
// positioned, and may see later ones. The zero value is not usable: see Table.Iter.
type Iter struct {
	t    *Table
	node ref
	// before is the last entry below that of the last SeekGE or SeekLT, or 0 if that is unknown. A
	// reader that moves backward by rows seeks to the start of a row and then below it.
	before ref
}

// Iter returns an iterator that is not positioned yet.
func (t *Table) Iter() Iter { return Iter{t: t} }

// First moves to the first entry and reports whether there is one.
func (it *Iter) First() bool {
	it.node = it.t.nodes().next(it.t.head, 0)
	return it.node != 0
}

// SeekGE moves to the first entry with a key >= key and reports whether there is one.
func (it *Iter) SeekGE(key []byte) bool {
	it.before, it.node = it.t.seek(key)
	return it.node != 0
}

// SeekLT moves to the last entry with a key < key and reports whether there is one. A nil key is
// above all others. The entry may be followed by later additions below key.
func (it *Iter) SeekLT(key []byte) bool {
	switch {
	case key == nil:
		it.node = it.t.last()
	case it.before != 0 && it.isBefore(key):
		it.node = it.before
	default:
		it.node, _ = it.t.seek(key)
	}
	it.before = 0
	return it.node != 0
}

// isBefore reports whether before is the last entry with a key < key.
func (it *Iter) isBefore(key []byte) bool {
	n := it.t.nodes()
	if bytes.Compare(n.key(it.before), key) >= 0 {
		return false
	}
	next := n.next(it.before, 0)
	if next != 0 && !n.has(next) {
		n = it.t.nodes()
	}
	return next == 0 || bytes.Compare(n.key(next), key) >= 0
}

// Next moves to the next entry and reports whether there is one. The iterator must be valid.
func (it *Iter) Next() bool {
	it.node = it.t.nodes().next(it.node, 0)
	return it.node != 0
}

// Valid reports whether the iterator is at an entry.
func (it *Iter) Valid() bool { return it.node != 0 }

// Key returns the entry's key. It must not be changed and may be kept.
func (it *Iter) Key() []byte { return it.t.nodes().key(it.node) }

// Value returns the entry's value. It must not be changed and may be kept.
func (it *Iter) Value() []byte { return it.t.value(it.node) }
