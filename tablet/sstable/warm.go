package sstable

import (
	"bytes"
	"context"
)

// Blocks is a set of data blocks of a file: a bitmap by their order in the file.
type Blocks []uint64

func (b *Blocks) add(i uint64) {
	for uint64(len(*b)) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

func (b Blocks) has(i uint64) bool { return i/64 < uint64(len(b)) && b[i/64]>>(i%64)&1 != 0 }

// warmth tracks which blocks of a file being written consist of data that was cached.
type warmth struct {
	cache  *Cache // nil: none
	num    uint64 // of the file in the cache
	cut    uint64 // number of ended data blocks
	bytes  int    // cached bytes of the current block
	blocks Blocks
}

func newWarmth(c *Cache) warmth {
	if c == nil {
		return warmth{}
	}
	return warmth{cache: c, num: c.newNum()}
}

// end ends a block of raw bytes and reports whether it is warm, which means that at least half of
// it was cached. Mostly cold data is not worth caching for the hot part in it.
func (w *warmth) end(raw int) bool {
	warm := w.cache != nil && 2*w.bytes >= raw
	if warm {
		w.blocks.add(w.cut)
	}
	w.cut++
	w.bytes = 0
	return warm
}

// put adds a warm block to the cache if the cache has unused capacity. Otherwise it would be
// evicted before it is read. If the file is discarded, the block is the first to be evicted.
func (w *warmth) put(off int64, raw []byte) {
	if w.cache.hasSpace(len(raw)) {
		w.cache.put(cacheKey{w.num, off}, bytes.Clone(raw))
	}
}

// FileNum returns the number of the file in Options.Cache, for OpenOptions.FileNum; 0 without a
// cache.
func (w *Writer) FileNum() uint64 { return w.warmth.num }

// WasCached records that the given number of bytes of the last added entry was cached: see
// Iter.Cached.
func (w *Writer) WasCached(bytes int) { w.warmth.bytes += bytes }

// Warm returns the blocks of which at least half was cached. The set is complete after Finish.
func (w *Writer) Warm() Blocks { return w.warmth.blocks }

// Warm reads those of the blocks that are not cached into the cache, in portions of about the given
// number of stored bytes. It is for a file that replaces others whose blocks are cached. Before
// each portion it calls begin with the portion's key range, lower <= key < upper (nil means no
// bound). After it, it calls end with the first key of the portion's last block and the portion's
// raw length. Errors: those of Iter.Err, of begin and end, and ctx's.
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

// portion is a group of blocks that Warm reads together.
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

// read reads the blocks into the cache and returns the first key of the last one, and their raw
// length.
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
