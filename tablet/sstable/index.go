package sstable

import "bytes"

// index is the block index of an open table.
type index struct {
	root indexBlock
	deep bool // root points to index blocks, not to data blocks
	// leaves has all index blocks, if they are held in memory.
	leaves []indexBlock
}

// indexCursor is a position at a data block in a table's index.
type indexCursor struct {
	t    *Table
	fill bool // put index blocks into the cache

	leaf *indexBlock // nil: not positioned
	i    int         // entry of leaf
	root int         // entry of the root for leaf, in a deep index
	own  indexBlock  // backs leaf if the table does not hold it
	h    handle      // of the data block

	// Bounds of the data block, once bounds was called: keys are >= lo and < hi. A nil hi means no
	// bound.
	bounded bool
	lo, hi  []byte
}

// seek moves to the data block that may have the first key >= target. All keys of that block may be
// below target; then the next block has it.
func (c *indexCursor) seek(target []byte) error {
	x := &c.t.index
	c.leaf = nil
	leaf := &x.root
	if x.deep {
		r, ok := x.root.find(target)
		if !ok {
			return c.t.corruptIndex()
		}
		var err error
		if leaf, err = c.load(r); err != nil {
			return err
		}
		c.root = r
	}
	i, ok := leaf.find(target)
	if !ok {
		return c.t.corruptIndex()
	}
	return c.moveTo(leaf, i)
}

// load returns the index block of entry r of the root.
func (c *indexCursor) load(r int) (*indexBlock, error) {
	x := &c.t.index
	if x.leaves != nil {
		return &x.leaves[r], nil
	}
	h, ok := x.root.handle(r)
	if !ok {
		return nil, c.t.corruptIndex()
	}
	p, err := c.t.block(h, kindIndex, c.fill)
	if err != nil {
		return nil, err
	}
	if err := c.own.parse(p, x.root.limit); err != nil || c.own.entries == 0 {
		return nil, c.t.file.corrupt(h, kindIndex)
	}
	return &c.own, nil
}

// moveTo moves to entry i of leaf.
func (c *indexCursor) moveTo(leaf *indexBlock, i int) error {
	h, ok := leaf.handle(i)
	if !ok {
		c.leaf = nil
		return c.t.corruptIndex()
	}
	c.leaf, c.i, c.h = leaf, i, h
	c.bounded = false
	return nil
}

// step moves to the next data block. It returns false at the end.
func (c *indexCursor) step() (bool, error) {
	if c.i+1 < c.leaf.entries {
		return true, c.moveTo(c.leaf, c.i+1)
	}
	x := &c.t.index
	if !x.deep || c.root+1 >= x.root.entries {
		return false, nil
	}
	leaf, err := c.load(c.root + 1)
	if err != nil {
		return false, err
	}
	c.root++
	return true, c.moveTo(leaf, 0)
}

// last moves to the last data block.
func (c *indexCursor) last() error {
	x := &c.t.index
	c.leaf = nil
	leaf := &x.root
	if x.deep {
		var err error
		if leaf, err = c.load(x.root.entries - 1); err != nil {
			return err
		}
		c.root = x.root.entries - 1
	}
	return c.moveTo(leaf, leaf.entries-1)
}

// seekLT moves to the data block that may have the last key < target; nil is above all keys. All keys
// of that block may be at or above target; then the block before it has it.
func (c *indexCursor) seekLT(target []byte) error {
	if target == nil {
		return c.last()
	}
	if err := c.seek(target); err != nil {
		return err
	}
	if err := c.bounds(); err != nil {
		return err
	}
	if bytes.Compare(c.lo, target) < 0 {
		return nil
	}
	_, err := c.back()
	return err
}

// back moves to the previous data block. It returns false at the first one.
func (c *indexCursor) back() (bool, error) {
	if c.i > 0 {
		return true, c.moveTo(c.leaf, c.i-1)
	}
	if !c.t.index.deep || c.root == 0 {
		return false, nil
	}
	leaf, err := c.load(c.root - 1)
	if err != nil {
		return false, err
	}
	c.root--
	return true, c.moveTo(leaf, leaf.entries-1)
}

// bounds sets lo and hi.
func (c *indexCursor) bounds() error {
	if c.bounded {
		return nil
	}
	x := &c.t.index
	lo, ok1 := c.leaf.wholeKey(c.i)
	var hi []byte
	ok2 := true
	if c.i+1 < c.leaf.entries {
		hi, ok2 = c.leaf.wholeKey(c.i + 1)
	} else if x.deep && c.root+1 < x.root.entries {
		hi, ok2 = x.root.wholeKey(c.root + 1)
	}
	if !ok1 || !ok2 {
		return c.t.corruptIndex()
	}
	c.lo, c.hi, c.bounded = lo, hi, true
	return nil
}

// covers reports whether key belongs to the current data block.
func (c *indexCursor) covers(key []byte) (bool, error) {
	if err := c.bounds(); err != nil {
		return false, err
	}
	return bytes.Compare(key, c.lo) >= 0 && (c.hi == nil || bytes.Compare(key, c.hi) < 0), nil
}

// corruptIndex returns the error for an index with valid checksums and malformed entries.
func (t *Table) corruptIndex() error {
	return &CorruptError{File: t.file.name, Offset: t.index.root.limit, Reason: "malformed index"}
}
