package sstable

import (
	"bytes"
	"context"
)

// Blocks are some of the data blocks of a file, by their place in it: a bit each.
type Blocks []uint64

func (b *Blocks) add(i uint64) {
	for uint64(len(*b)) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

func (b Blocks) has(i uint64) bool { return i/64 < uint64(len(b)) && b[i/64]>>(i%64)&1 != 0 }

// warmth is which blocks of a file that is written are made of what a cache had.
type warmth struct {
	cache  *Cache // nil: none
	num    uint64 // of the file in the cache
	cut    uint64 // data blocks so far
	bytes  int    // of the one under way that the cache had
	blocks Blocks
}

func newWarmth(c *Cache) warmth {
	if c == nil {
		return warmth{}
	}
	return warmth{cache: c, num: c.newNum()}
}

// end ends a block of so many bytes, and tells whether it is warm: if half of it was in the cache. What comes together with little that is
// hot is not.
func (w *warmth) end(raw int) bool {
	warm := w.cache != nil && 2*w.bytes >= raw
	if warm {
		w.blocks.add(w.cut)
	}
	w.cut++
	w.bytes = 0
	return warm
}

// put puts a warm block into the cache if there is room that nobody has; otherwise it would be gone before anybody reads it. If the file is
// given up it is the first to go.
func (w *warmth) put(off int64, raw []byte) {
	if w.cache.hasRoom(len(raw)) {
		w.cache.put(cacheKey{w.num, off}, bytes.Clone(raw))
	}
}

// FileNum is what Options.Cache knows the file by, OpenOptions.FileNum; 0 without one.
func (w *Writer) FileNum() uint64 { return w.warmth.num }

// WasCached says that so many bytes of the entry that was added last were in the cache: Iter.Cached tells.
func (w *Writer) WasCached(bytes int) { w.warmth.bytes += bytes }

// Warm returns the blocks of which half at least was said to have been cached. They are whole when Finish has returned.
func (w *Writer) Warm() Blocks { return w.warmth.blocks }

// Warm reads those blocks into the cache that are not there, portions of about so many bytes one after the other: for a file that is to be
// read in the place of others, whose blocks are in the cache. Before each portion begin is told between which keys it lies,
// lower <= key < upper, nil being no bound, after it end the first key of its last block, and the portion's raw length. Errors: those of Iter.Err,
// begin's and end's, ctx's.
func (t *Table) Warm(ctx context.Context, blocks Blocks, bytes int, begin func(lower, upper []byte) error, end func(last []byte, bytes int) error) error {
	if t.cache == nil || len(blocks) == 0 || t.meta.Entries == 0 || t.pinned.Load() != nil {
		return nil
	}
	c := indexCursor{t: t}
	if err := c.seek(nil); err != nil {
		return err
	}
	p := portion{t: t}
	for i, more := uint64(0), true; more; i++ {
		if _, ok := t.cache.peek(cacheKey{t.num, c.h.off}); !ok && blocks.has(i) {
			if err := p.add(&c); err != nil {
				return err
			}
		}
		var err error
		if more, err = c.step(); err != nil {
			return err
		}
		if p.stored < bytes && more || len(p.blocks) == 0 {
			continue
		}
		if err := begin(p.lower, p.upper); err != nil {
			return err
		}
		last, raw, err := p.read()
		if err != nil {
			return err
		}
		if err := end(last, raw); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p = portion{t: t, blocks: p.blocks[:0]}
	}
	return nil
}

// portion is blocks that Warm reads together.
type portion struct {
	t            *Table
	blocks       []handle
	lower, upper []byte
	stored       int
}

func (p *portion) add(c *indexCursor) error {
	if err := c.bounds(); err != nil {
		return err
	}
	if len(p.blocks) == 0 {
		p.lower = bytes.Clone(c.lo)
	}
	p.upper = bytes.Clone(c.hi)
	p.blocks = append(p.blocks, c.h)
	p.stored += c.h.stored
	return nil
}

// read reads the blocks into the cache, and returns the first key of the last, and their raw length.
func (p *portion) read() (last []byte, raw int, err error) {
	var block []byte
	var at handle
	for _, at = range p.blocks {
		if block, err = p.t.file.read(at, kindData, 0); err != nil {
			return nil, 0, err
		}
		p.t.cache.inherit(cacheKey{p.t.num, at.off}, block)
		raw += len(block)
	}
	var it blockIter
	if it.reset(block) != nil || !it.next() {
		return nil, 0, p.t.file.corrupt(at, kindData)
	}
	return it.key, raw, nil
}
