package sstable

// readAhead reads several data blocks at once for an iterator that moves forward and does not fill
// the cache.
type readAhead struct {
	run  []handle
	buf  []byte // the frames of run
	last int64  // end of the block requested last
	hit  bool   // the block requested last was in the cache
}

// block returns the data block at c. If the iterator came from the previous block, the blocks that
// follow in the same index block are read with it. After a seek only the one block is read.
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
		if !forward || h.stored > limit { // buf would keep a huge value in addition to its decompressed form
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
			// Another block may be corrupt. If it is this one, the error locates it.
			return t.file.read(h, kindData, 0)
		}
	}
	at := h.off - a.run[0].off
	return t.file.open(a.buf[at:at+int64(h.stored)+trailerBytes], h, kindData)
}

// has reports whether h is in buf.
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
