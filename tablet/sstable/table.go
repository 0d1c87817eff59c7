package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"
)

// Table is an open SSTable. It is immutable and safe for concurrent use. It holds only memory, so
// it has no Close. Its Source must stay open while the table or an iterator of it is in use.
type Table struct {
	file   file
	cache  *Cache
	num    uint64
	meta   Meta
	props  map[string][]byte
	index  index
	filter *filter // nil if the file has none
	memory int64
	pinned atomic.Pointer[pinned] // nil if nothing is pinned
	kept   keptEntries

	directory handle
	blocks    map[string]handle // by their names in the directory
}

// Open reads what a table holds in memory: the index, or the root of a large one, the filter, and
// the properties. Errors: *CorruptError, *VersionError, those of the Source, and ctx's, which is
// checked between reads.
func Open(ctx context.Context, src Source, opts OpenOptions) (*Table, error) {
	t := &Table{
		file:  file{src: src, name: opts.Name, size: src.Size()},
		cache: opts.Cache,
		num:   opts.FileNum,
	}
	if t.num == 0 && t.cache != nil {
		t.num = t.cache.newNum()
	}
	o := opener{t: t, ctx: ctx, indexMax: opts.IndexBytesMax}
	if o.indexMax == 0 {
		o.indexMax = defaultIndexBytesMax
	}
	if err := o.open(); err != nil {
		return nil, err
	}
	return t, nil
}

// defaultIndexBytesMax is documented at OpenOptions.
const defaultIndexBytesMax = 8 << 20

// Meta returns the table's description. Its slices must not be changed.
func (t *Table) Meta() Meta { return t.meta }

// Properties returns the properties given to Writer.Finish. The map and its values must not be
// changed.
func (t *Table) Properties() map[string][]byte { return t.props }

// Name returns OpenOptions.Name.
func (t *Table) Name() string { return t.file.name }

// MemoryBytes returns the memory that the table holds outside the cache.
func (t *Table) MemoryBytes() int64 { return t.memory }

// MayContain reports whether any key of the table may begin with prefix. False is certain, provided
// that Options.FilterPrefixes returns prefix for such keys: see Meta.FilterName. It returns true
// for a table without a filter.
func (t *Table) MayContain(prefix []byte) bool {
	return t.filter == nil || t.filter.mayContain(prefix)
}

// Overlaps reports whether the range from the table's first to its last key overlaps lower <= key <
// upper. Nil means no bound.
func (t *Table) Overlaps(lower, upper []byte) bool {
	return t.meta.Entries > 0 &&
		(lower == nil || bytes.Compare(t.meta.LastKey, lower) >= 0) &&
		(upper == nil || bytes.Compare(t.meta.FirstKey, upper) < 0)
}

// ApproxBytes estimates from the index how many bytes of the file belong to keys in lower <= key <
// upper. The results of adjacent ranges add up exactly, and that of all keys is the size of the
// file: index, filter and properties are divided like the data blocks. Errors are those of
// Iter.Err.
func (t *Table) ApproxBytes(lower, upper []byte) (int64, error) {
	if !t.Overlaps(lower, upper) {
		return 0, nil
	}
	start, end := int64(0), t.file.size
	var err error
	if lower != nil {
		if start, err = t.bytesBelow(lower); err != nil {
			return 0, err
		}
	}
	if upper != nil {
		if end, err = t.bytesBelow(upper); err != nil {
			return 0, err
		}
	}
	return max(end-start, 0), nil
}

// Samples calls f, in key order, about once per every bytes of the file in lower <= key < upper
// (nil means no bound). key is above all keys of the data block before it and <= all keys of the
// next; it need not be in the table. bytes is the size since the previous call. Samples reads only
// the index. Errors are those of Iter.Err.
func (t *Table) Samples(lower, upper []byte, every int64, f func(key []byte, bytes int64)) error {
	if !t.Overlaps(lower, upper) {
		return nil
	}
	c := indexCursor{t: t}
	if err := c.seek(lower); err != nil {
		return err
	}
	for n := int64(0); ; {
		if n += int64(c.h.stored); n >= every {
			if err := c.bounds(); err != nil {
				return err
			}
			if c.hi == nil || upper != nil && bytes.Compare(c.hi, upper) >= 0 {
				return nil
			}
			f(bytes.Clone(c.hi), n)
			n = 0
		}
		if more, err := c.step(); !more || err != nil {
			return err
		}
	}
}

// bytesBelow estimates how many bytes of the file belong to keys below key. It is monotonic in key.
func (t *Table) bytesBelow(key []byte) (int64, error) {
	if bytes.Compare(key, t.meta.LastKey) > 0 {
		return t.file.size, nil
	}
	c := indexCursor{t: t}
	if err := c.seek(key); err != nil {
		return 0, err
	}
	if bytes.Compare(key, t.meta.FirstKey) <= 0 {
		return 0, nil
	}
	if err := c.bounds(); err != nil {
		return 0, err
	}
	lo, hi := c.lo, c.hi
	if bytes.Compare(lo, t.meta.FirstKey) < 0 {
		lo = t.meta.FirstKey
	}
	if hi == nil {
		hi = t.meta.LastKey
	}
	data := float64(c.h.off-headerBytes) + float64(c.h.stored)*keyFraction(key, lo, hi)
	return min(int64(float64(t.file.size)*data/float64(max(t.meta.DataBytes, 1))), t.file.size), nil
}

// keyFraction returns the position of key between lo and hi as a fraction from 0 to 1, based on the
// eight bytes after the common prefix of lo and hi.
func keyFraction(key, lo, hi []byte) float64 {
	same := 0
	for same < len(lo) && same < len(hi) && lo[same] == hi[same] {
		same++
	}
	number := func(k []byte) uint64 {
		var b [8]byte
		copy(b[:], k[min(same, len(k)):])
		return binary.BigEndian.Uint64(b[:])
	}
	from, at, to := number(lo), number(key), number(hi)
	if at <= from || from >= to {
		return 0
	}
	return min(float64(at-from)/float64(to-from), 1)
}

// DropCached removes the table's blocks and entries from the cache, for use when the file is
// deleted. Blocks being read, and blocks under an index block that is neither in memory nor cached,
// stay until they are evicted.
func (t *Table) DropCached() {
	if t.cache == nil {
		return
	}
	for _, off := range t.kept.take() {
		t.cache.rows.Invalidate(cacheKey{t.num, off})
	}
	x := &t.index
	switch {
	case !x.deep:
		t.dropLeaf(&x.root)
	case x.leaves != nil:
		for i := range x.leaves {
			t.dropLeaf(&x.leaves[i])
		}
	default:
		for i := range x.root.entries {
			h, _ := x.root.handle(i)
			k := cacheKey{t.num, h.off}
			var leaf indexBlock
			if p, ok := t.cache.peek(k); ok && leaf.parse(p, x.root.limit) == nil {
				t.dropLeaf(&leaf)
				t.cache.drop(k)
			}
		}
	}
}

// DropCachedIn removes from the cache the blocks in lower <= key < upper (nil means no bound): from
// the block that lower belongs to, up to the last one that ends at or below upper. The table's last
// block stays unless upper is nil. Errors are those of Iter.Err.
func (t *Table) DropCachedIn(lower, upper []byte) error {
	if t.cache == nil || !t.Overlaps(lower, upper) {
		return nil
	}
	c := indexCursor{t: t}
	if err := c.seek(lower); err != nil {
		return err
	}
	for more := true; more; {
		if err := c.bounds(); err != nil {
			return err
		}
		if upper != nil && (c.hi == nil || bytes.Compare(c.hi, upper) > 0) {
			return nil
		}
		t.cache.drop(cacheKey{t.num, c.h.off})
		var err error
		if more, err = c.step(); err != nil {
			return err
		}
	}
	return nil
}

// dropLeaf removes the blocks that an index block points to from the cache.
func (t *Table) dropLeaf(leaf *indexBlock) {
	for i := range leaf.entries {
		if h, ok := leaf.handle(i); ok {
			t.cache.drop(cacheKey{t.num, h.off})
		}
	}
}

// block returns the raw bytes of the block at h, from memory if possible.
func (t *Table) block(h handle, k kind, fill bool) ([]byte, error) {
	p, _, err := t.lookup(h, k, fill, 0, nil)
	return p, err
}

// lookup is block, and also reports whether the block was not in memory. Unless rawMax is 0, it does
// not decompress a larger block and returns a *largeBlock. If began is not nil, it is set to when a block that was
// not in memory is read.
func (t *Table) lookup(h handle, k kind, fill bool, rawMax int, began *time.Time) (p []byte, missed bool, err error) {
	key := cacheKey{t.num, h.off}
	if p, ok := t.inMemory(key, fill); ok {
		return p, false, nil
	}
	if began != nil {
		*began = time.Now()
	}
	if t.cache == nil || !fill {
		p, err := t.file.read(h, k, rawMax)
		return p, true, err
	}
	p, err = t.cache.load(key, func() ([]byte, error) { return t.file.read(h, k, rawMax) })
	if large, ok := err.(*largeBlock); ok && (rawMax == 0 || large.raw <= rawMax) { // a shared read by a caller with a lower limit
		p, err = t.file.read(h, k, rawMax)
	}
	return p, true, err
}

// inMemory returns a block that is pinned or cached. fill counts it as used.
func (t *Table) inMemory(key cacheKey, fill bool) (p []byte, ok bool) {
	if p, ok := t.pinnedBlock(key.off); ok || t.cache == nil {
		return p, ok
	}
	if fill {
		return t.cache.get(key)
	}
	return t.cache.peek(key)
}

// setProps divides the properties block into the caller's and the package's own.
func (t *Table) setProps(b *indexBlock) bool {
	t.props = map[string][]byte{}
	for i := range b.entries {
		name, value, ok := b.at(i)
		if !ok {
			return false
		}
		if strings.HasPrefix(string(name), ownPrefix) {
			if !t.meta.setOwn(string(name), value) {
				return false
			}
		} else {
			t.props[string(name)] = value
		}
	}
	return true
}
