package memtable

// Iter iterates over a table's entries in key order. It sees all entries that existed when it was
// positioned, and may see later ones. The zero value is not usable: see Table.Iter.
type Iter struct {
	t    *Table
	node ref
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
	it.node = it.t.seekGE(key)
	return it.node != 0
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
