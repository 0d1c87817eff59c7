package sstable

import (
	"context"
	"errors"
)

// ErrNoGrant means that Pin did not get the memory that it asked for.
var ErrNoGrant = errors.New("no memory to keep the table's blocks in")

// pinned are raw blocks that stay in memory as long as the table, by their
// offsets. It never changes.
type pinned struct {
	blocks map[int64][]byte
	bytes  int64
}

// pinOverhead is what a pinned block takes beside its bytes: its share of the
// map, which is half full at times.
const pinOverhead = 96

// pinRunBytes is how much of the file one read of Pin takes. 1 MiB: as much
// as a disk gives in the time of a seek.
const pinRunBytes = 1 << 20

// Pin reads all blocks with keys in lower <= key < upper, nil being no bound,
// and keeps them: whoever reads them finds them in memory from then on, and
// they leave the cache. grant is asked before Pin keeps so many bytes more, and
// all that it granted is PinnedBytes when Pin returns nil. What was pinned
// before is given up then. Errors: ErrNoGrant, those of Iter.Err, ctx's; the
// table is as it was then, and what was granted is free.
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

// run appends the handles of the blocks from the one at hand on that one read
// takes, and moves behind them. more is false if there are none below upper.
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

// pinRun keeps blocks that lie one after the other.
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
			raw = append(make([]byte, 0, len(raw)), raw...) // by itself: the rest of the run is not kept by it
		}
		if err := keep(h, raw); err != nil {
			return err
		}
	}
	return nil
}

// pinIndex keeps the index blocks, if the table does not hold them.
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

// Unpin gives up what Pin keeps. Who reads a block still has it.
func (t *Table) Unpin() { t.pinned.Store(nil) }

// PinnedBytes returns the memory of what is pinned.
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
