package sstable

import "errors"

// errIndex means that an index entry is malformed. Readers turn it into a
// *CorruptError.
var errIndex = errors.New("malformed index entry")

// index is the block index of an open table.
type index struct {
	root *block
	deep bool // root points to index blocks, not to data blocks
	// leaves are the index blocks, if all are held in memory.
	leaves []*block
	limit  int64 // blocks lie below it
}

// findEntry returns the last entry of an index block whose separator is at or
// below target, or the first entry. The block is not empty.
func findEntry(b *block, target []byte) (int, error) {
	i, ok := b.lastRestartLE(target, 0)
	if !ok {
		return 0, errIndex
	}
	return max(i, 0), nil
}

// entryAt returns the i-th entry of an index block.
func entryAt(b *block, i int, limit int64) (sep []byte, h handle, err error) {
	sep, value, ok := b.at(i)
	if !ok {
		return nil, handle{}, errIndex
	}
	if h, ok = decodeHandle(value, limit); !ok {
		return nil, handle{}, errIndex
	}
	return sep, h, nil
}

// handles returns all handles of an index block.
func handles(b *block, limit int64) ([]handle, error) {
	hs := make([]handle, b.entries)
	for i := range hs {
		var err error
		if _, hs[i], err = entryAt(b, i, limit); err != nil {
			return nil, err
		}
	}
	return hs, nil
}

// parseIndexBlock parses a block in which every key must be whole.
func parseIndexBlock(raw []byte) (*block, error) {
	b := new(block)
	if err := b.parse(raw); err != nil {
		return nil, err
	}
	if b.numRestarts() != b.entries {
		return nil, errBlock
	}
	return b, nil
}

// indexCursor stands on one entry of a table's index.
type indexCursor struct {
	t    *Table
	leaf *block // nil: nowhere
	i    int    // entry of leaf
	root int    // entry of the root that leaf is under, in a deep index
	fill bool   // put index blocks into the cache

	h   handle // of the data block
	sep []byte // lower bound of the data block
	// next is the lower bound of the data block after it; nil if there is
	// none.
	next []byte
}

// seek moves to the data block in which the first key at or above target is,
// or the one before: keys of the block it stands on may all be below target.
func (c *indexCursor) seek(target []byte) error {
	x := &c.t.index
	c.leaf = nil
	leaf := x.root
	if x.deep {
		r, err := findEntry(x.root, target)
		if err != nil {
			return c.t.corruptIndex()
		}
		if leaf, err = c.load(r); err != nil {
			return err
		}
		c.root = r
	}
	i, err := findEntry(leaf, target)
	if err != nil {
		return c.t.corruptIndex()
	}
	c.leaf, c.i = leaf, i
	return c.take()
}

// load returns the index block at the r-th entry of the root.
func (c *indexCursor) load(r int) (*block, error) {
	x := &c.t.index
	if x.leaves != nil {
		return x.leaves[r], nil
	}
	_, h, err := entryAt(x.root, r, x.limit)
	if err != nil {
		return nil, c.t.corruptIndex()
	}
	b, err := c.t.block(h, kindIndex, c.fill)
	if err != nil {
		return nil, err
	}
	if b.entries == 0 || b.numRestarts() != b.entries {
		return nil, c.t.file.corrupt(h, kindIndex)
	}
	return b, nil
}

// take decodes the entry that the cursor stands on.
func (c *indexCursor) take() error {
	x := &c.t.index
	var err error
	if c.sep, c.h, err = entryAt(c.leaf, c.i, x.limit); err != nil {
		return c.t.corruptIndex()
	}
	c.next = nil
	ok := true
	if c.i+1 < c.leaf.entries {
		c.next, ok = c.leaf.wholeKey(c.i + 1)
	} else if x.deep && c.root+1 < x.root.entries {
		c.next, ok = x.root.wholeKey(c.root + 1)
	}
	if !ok {
		return c.t.corruptIndex()
	}
	return nil
}

// step moves to the next data block. It returns false at the end.
func (c *indexCursor) step() (bool, error) {
	x := &c.t.index
	if c.i+1 < c.leaf.entries {
		c.i++
		return true, c.take()
	}
	if !x.deep || c.root+1 >= x.root.entries {
		return false, nil
	}
	leaf, err := c.load(c.root + 1)
	if err != nil {
		return false, err
	}
	c.leaf, c.i = leaf, 0
	c.root++
	return true, c.take()
}

// corruptIndex is the error for an index whose checksums are right and whose
// entries are not.
func (t *Table) corruptIndex() error {
	return &CorruptError{File: t.file.name, Offset: t.index.limit, Reason: "malformed index"}
}
