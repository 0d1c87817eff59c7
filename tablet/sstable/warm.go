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

// Warm reads those blocks into the cache that are not there, in the place of others that are asked for less often than these are taken to be: for a file that
// a compaction has written, before it is read in the place of those whose blocks are in the cache. step is told the raw length of each. Errors: those of
// Iter.Err, ctx's; some blocks may be in the cache then.
func (t *Table) Warm(ctx context.Context, blocks Blocks, step func(raw int)) error {
	if t.cache == nil || len(blocks) == 0 || t.meta.Entries == 0 {
		return nil
	}
	c := indexCursor{t: t}
	if err := c.seek(nil); err != nil {
		return err
	}
	for i, more := uint64(0), true; more; i++ {
		if _, ok := t.cache.peek(cacheKey{t.num, c.h.off}); !ok && blocks.has(i) {
			raw, err := t.file.read(c.h, kindData, 0)
			if err != nil {
				return err
			}
			t.cache.inherit(cacheKey{t.num, c.h.off}, raw)
			step(len(raw))
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		var err error
		if more, err = c.step(); err != nil {
			return err
		}
	}
	return nil
}
