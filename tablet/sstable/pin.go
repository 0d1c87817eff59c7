package sstable

import (
	"context"
	"errors"
)

// ErrNoGrant means that grant refused the memory for Pin.
var ErrNoGrant = errors.New("no memory to pin the table's blocks")

// pinned has raw blocks, by their offsets, that stay in memory with the table. It never changes.
type pinned struct {
	blocks map[int64][]byte
	bytes  int64
}

// pinOverhead is the memory of a pinned block beside its bytes: its share of the map, which may be
// half full.
const pinOverhead = 96

// pinRunBytes is the size of one read of Pin. 1 MiB: what a disk transfers in the time of a seek.
const pinRunBytes = 1 << 20

// Pin reads all blocks with keys in lower <= key < upper (nil means no bound) and keeps them in
// memory for all readers. They leave the cache. Pin calls grant before it keeps more bytes; the sum
// of the granted bytes is PinnedBytes when Pin returns nil. Previously pinned blocks are released
// then. Errors: ErrNoGrant, those of Iter.Err, ctx's. After an error the table is unchanged, and
// the caller takes back its grants.
func (t *Table) Pin(ctx context.Context, lower, upper []byte, grant func(bytes int64) bool) error {
	p := &pinned{blocks: make(map[int64][]byte)}
	keep := func(h handle, raw []byte) error {
		n := int64(cap(raw)) + pinOverhead
		if !grant(n) {
			return ErrNoGrant
		}
		p.blocks[h.off] = raw
		p.bytes += n
		return nil
	}
	if !t.Overlaps(lower, upper) {
		t.pinned.Store(p)
		return nil
	}
	if err := t.pinIndex(keep); err != nil {
		return err
	}
	c := indexCursor{t: t}
	if err := c.seek(lower); err != nil {
		return err
	}
	var run []handle
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if run, more, err = c.run(run[:0], upper); err != nil {
			return err
		}
		if err := t.pinRun(run, keep); err != nil {
			return err
		}
	}
	t.pinned.Store(p)
	t.DropCached()
	return nil
}

// run appends the handles of the blocks of one read, starting with the current block, and moves
// past them. more is false if no blocks below upper are left.
func (c *indexCursor) run(run []handle, upper []byte) (_ []handle, more bool, err error) {
	for {
		run = append(run, c.h)
		if err := c.bounds(); err != nil {
			return run, false, err
		}
		if c.hi == nil || upper != nil && string(c.hi) >= string(upper) {
			return run, false, nil
		}
		if more, err := c.step(); !more || err != nil {
			return run, false, err
		}
		if c.h.off != run[len(run)-1].end() || c.h.end()-run[0].off > pinRunBytes {
			return run, true, nil
		}
	}
}

// pinRun pins contiguous blocks.
func (t *Table) pinRun(run []handle, keep func(handle, []byte) error) error {
	p, err := t.file.readRun(run)
	if err != nil {
		return err
	}
	for _, h := range run {
		at := h.off - run[0].off
		raw, err := t.file.open(p[at:at+int64(h.stored)+trailerBytes], h, kindData)
		if err != nil {
			return err
		}
		if !h.compressed {
			raw = append(make([]byte, 0, len(raw)), raw...) // a copy, which does not keep the whole run in memory
		}
		if err := keep(h, raw); err != nil {
			return err
		}
	}
	return nil
}

// pinIndex pins the index blocks, if the table does not hold them.
func (t *Table) pinIndex(keep func(handle, []byte) error) error {
	x := &t.index
	if !x.deep || x.leaves != nil {
		return nil
	}
	for i := range x.root.entries {
		h, ok := x.root.handle(i)
		if !ok {
			return t.corruptIndex()
		}
		p, err := t.block(h, kindIndex, false)
		if err == nil {
			err = keep(h, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unpin releases the pinned blocks. Readers of a block keep it in memory.
func (t *Table) Unpin() { t.pinned.Store(nil) }

// PinnedBytes returns the memory of the pinned blocks.
func (t *Table) PinnedBytes() int64 {
	if p := t.pinned.Load(); p != nil {
		return p.bytes
	}
	return 0
}

// pinnedBlock returns the raw bytes of the block at off, if it is pinned.
func (t *Table) pinnedBlock(off int64) ([]byte, bool) {
	p := t.pinned.Load()
	if p == nil {
		return nil, false
	}
	raw, ok := p.blocks[off]
	return raw, ok
}
