package sstable

// readAhead reads several data blocks at once for an iterator that moves
// forward and leaves the cache as it is.
type readAhead struct {
	run  []handle
	buf  []byte // what was read, from run[0] on
	last int64  // end of the block that was asked for last
	hit  bool   // it was in the cache
}

// block returns the data block that c stands on. Blocks after it are read
// with it if they follow in the same index block and the iterator came here
// from the block before; a look-up reads no more than it needs.
func (a *readAhead) block(t *Table, c *indexCursor, limit int) ([]byte, error) {
	h := c.h
	forward := h.off == a.last
	a.last, a.hit = h.end(), false
	if p, ok := t.pinnedBlock(h.off); ok {
		return p, nil
	}
	if t.cache != nil {
		if p, ok := t.cache.peek(cacheKey{t.num, h.off}); ok {
			a.hit = true
			return p, nil
		}
	}
	if !a.has(h) {
		if !forward || h.stored > limit { // buf would keep a huge value beside what it is decompressed to
			a.buf = nil
			return t.file.read(h, kindData, 0)
		}
		a.run = append(a.run[:0], h)
		for i := c.i + 1; i < c.leaf.entries; i++ {
			n, ok := c.leaf.handle(i)
			if !ok || n.off != a.run[len(a.run)-1].end() || n.end()-h.off > int64(limit) {
				break
			}
			a.run = append(a.run, n)
		}
		var err error
		if a.buf, err = t.file.readRun(a.run); err != nil {
			// Perhaps not this block is the bad one; if it is, it is
			// named now.
			return t.file.read(h, kindData, 0)
		}
	}
	at := h.off - a.run[0].off
	return t.file.open(a.buf[at:at+int64(h.stored)+trailerBytes], h, kindData)
}

// has tells whether h is in what was read.
func (a *readAhead) has(h handle) bool {
	if a.buf == nil {
		return false
	}
	for _, r := range a.run {
		if r == h {
			return true
		}
	}
	return false
}
