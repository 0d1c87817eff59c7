package sstable

import (
	"bytes"
	"sync"
	"time"
)

// Iter iterates over the entries of a table in key order. A new Iter has no position: call SeekGE
// or First. It must be used by one goroutine at a time.
//
// Key's slice is valid until the iterator moves or is closed. Value's slice refers to memory that
// never changes: it may be kept, and keeps its block in memory.
type Iter struct {
	t     *Table
	opts  IterOptions
	index indexCursor
	data  blockIter
	// loaded means that data iterates over the block at index.
	loaded bool
	// inside means that every key of that block is below opts.Upper.
	inside bool
	// single means that the block is large and has one entry, whose key is a copy.
	single bool
	// raw is the raw length of that block.
	raw int
	// released means that the block was released. If data is valid, only its key and index remain;
	// otherwise only index.
	released bool
	// within means that SeekWithin has replaced opts.Upper, which was upper.
	within bool
	upper  []byte
	// missed means that some data block was not in memory.
	missed bool
	reads  Reads
	err    error
	ahead  readAhead
}

var iters = sync.Pool{New: func() any { return new(Iter) }}

// NewIter returns an iterator over the entries within the bounds of opts. Iterators are pooled:
// Close returns them to the pool.
func (t *Table) NewIter(opts IterOptions) *Iter {
	it := iters.Get().(*Iter)
	it.t, it.opts = t, opts
	it.index.t, it.index.fill = t, !opts.NoCacheFill
	return it
}

// Close returns the iterator to its pool. The iterator must not be used after that; its values may.
// It returns Err.
func (it *Iter) Close() error {
	err := it.err
	buf, back := it.data.buf, it.data.back
	if cap(buf) > KeyBytesMax/16 {
		buf = nil
	}
	if back != nil && cap(back.keys) > placesBytesMax/16 {
		back = nil
	}
	run := it.ahead.run[:0]
	*it = Iter{}
	it.data.buf, it.data.back = buf, back
	it.ahead.run = run
	iters.Put(it)
	return err
}

// SetGate sets IterOptions.Gate of an iterator that has not moved yet.
func (it *Iter) SetGate(g Gate) { it.opts.Gate = g }

// Reads are the data blocks that an iterator has looked up.
type Reads struct {
	Blocks, Missed int           // all, and those that were not in memory
	Began          time.Time     // the first read of a missed block; only of a timed iterator
	Took           time.Duration // the sum of all such reads
}

func (r *Reads) add(began time.Time) {
	if r.Began.IsZero() {
		r.Began = began
	}
	r.Took += time.Since(began)
}

// TakeReads returns what the iterator has looked up since NewIter or the last TakeReads, without what it has read
// ahead.
func (it *Iter) TakeReads() Reads {
	r := it.reads
	it.reads = Reads{}
	return r
}

// timer returns where the time of a read is stored; nil if the iterator is not timed.
func (it *Iter) timer(began *time.Time) *time.Time {
	if !it.opts.Timed {
		return nil
	}
	return began
}

// Valid reports whether the iterator is at an entry.
func (it *Iter) Valid() bool { return it.data.valid }

// Key returns the key of the entry; nil if not Valid.
func (it *Iter) Key() []byte { return it.data.key }

// Value returns the value of the entry. It is nil if not Valid, or if the value was released and
// reading it again failed: see Err.
func (it *Iter) Value() []byte {
	if it.released {
		it.fetch()
	}
	return it.data.value
}

// Err returns the error that stopped the iterator: a *CorruptError, or that of the Source. It is
// nil if the iterator is Valid or at the end. Only the next SeekGE or First clears it.
func (it *Iter) Err() error { return it.err }

// Cached reports whether the block of the entry was in the cache. It is meaningful only for an
// iterator that reads ahead.
func (it *Iter) Cached() bool { return it.ahead.hit }

// First moves to the first entry and returns Valid.
func (it *Iter) First() bool { return it.SeekGE(nil) }

// SeekGE moves to the first entry with a key >= key, forward or backward, and returns Valid. If
// that entry is in the current block, it does not use the index; if it is near, it costs little
// more than Next.
func (it *Iter) SeekGE(key []byte) bool {
	if it.opts.Lower != nil && bytes.Compare(key, it.opts.Lower) < 0 {
		key = it.opts.Lower
	}
	it.err = nil
	if it.opts.Upper != nil && bytes.Compare(key, it.opts.Upper) >= 0 {
		it.data.valid, it.data.key, it.data.value = false, nil, nil
		return false
	}
	inBlock := it.loaded
	if inBlock {
		var err error
		if inBlock, err = it.index.covers(key); err != nil {
			return it.stop(err)
		}
	}
	if inBlock && it.released {
		if it.data.valid { // the first key >= key is this one or that of the next block
			if bytes.Compare(it.data.key, key) < 0 {
				it.data.valid, it.data.key = false, nil
			}
			return it.settle()
		}
		inBlock = false
	}
	switch {
	case !inBlock:
		if !it.seekBlock(key) {
			return false
		}
		it.data.seekGE(key, 0)
	case !it.data.valid:
		it.data.seekGE(key, 0)
	default:
		switch c := bytes.Compare(it.data.key, key); {
		case c < 0:
			it.data.seekForward(key)
		case c > 0:
			it.data.seekBack(key)
		}
	}
	return it.settle()
}

// Next moves to the next entry and returns Valid. An iterator that is not Valid stays so.
func (it *Iter) Next() bool {
	if !it.data.valid {
		return false
	}
	if it.released {
		it.data.valid, it.data.key = false, nil // it was the only entry
		return it.settle()
	}
	if it.data.next() && it.inside {
		return true
	}
	return it.settle()
}

// settle moves to the next block if the current one has no more entries, and stops at the upper
// bound.
func (it *Iter) settle() bool {
	for !it.data.valid {
		if it.data.bad {
			return it.stop(it.t.file.corrupt(it.index.h, kindData))
		}
		if it.err != nil || !it.loaded {
			return false
		}
		it.releaseBlock()
		if !it.inside {
			// The next block may be above the bound.
			if err := it.index.bounds(); err != nil {
				return it.stop(err)
			}
			if bytes.Compare(it.index.hi, it.opts.Upper) >= 0 {
				return false
			}
		}
		if ok, err := it.index.step(); err != nil {
			return it.stop(err)
		} else if !ok {
			return false
		}
		if !it.load() {
			return false
		}
		it.data.next()
	}
	if it.inside || bytes.Compare(it.data.key, it.opts.Upper) < 0 {
		if it.single {
			it.data.setKey(nil, it.data.key)
		}
		return true
	}
	it.data.valid, it.data.key, it.data.value = false, nil, nil
	it.releaseBlock()
	return false
}

// seekBlock loads the block to which key belongs.
func (it *Iter) seekBlock(key []byte) bool {
	if it.t.meta.Entries == 0 {
		return it.stop(nil)
	}
	if err := it.index.seek(key); err != nil {
		return it.stop(err)
	}
	return it.load()
}

// load makes data iterate over the block at index.
func (it *Iter) load() bool {
	p, err := it.block()
	if err != nil {
		return it.stop(err)
	}
	if err := it.data.reset(p); err != nil {
		return it.stop(it.t.file.corrupt(it.index.h, kindData))
	}
	it.loaded, it.released = true, false
	if it.raw = len(p); it.opts.Loaded != nil {
		it.opts.Loaded(it.raw)
	}
	it.single = it.opts.Gate != nil && it.raw > GateBytes && it.data.b.entries == 1
	return it.setInside()
}

// setInside sets inside for the current block.
func (it *Iter) setInside() bool {
	if it.inside = true; it.opts.Upper != nil {
		if err := it.index.bounds(); err != nil {
			return it.stop(err)
		}
		hi := it.index.hi
		it.inside = hi != nil && bytes.Compare(hi, it.opts.Upper) <= 0
	}
	return true
}

// LargeBytes returns the size of the block of a large current entry; 0 if the entry is not large or
// was released.
func (it *Iter) LargeBytes() int {
	if it.single && it.data.valid && !it.released {
		return it.raw
	}
	return 0
}

// ReleaseValue releases the block of a large current entry, except the key. Value reads it again.
func (it *Iter) ReleaseValue() {
	if it.data.valid {
		it.releaseBlock()
	}
}

// releaseBlock releases the block of a large entry. data.buf keeps its key.
func (it *Iter) releaseBlock() {
	if it.single {
		if key, ok := it.firstKey(); ok {
			it.data.buf = append(it.data.buf[:0], key...)
		}
		it.data.b, it.data.value, it.released = block{}, nil, true
	}
}

// firstKey returns the first key of the current block; false if the block was released or is malformed.
func (it *Iter) firstKey() (key []byte, ok bool) {
	if it.data.b.entries == 0 {
		return nil, false
	}
	return it.data.b.wholeKey(0)
}

// fetch reads a released block again, if the iterator is still at its entry.
func (it *Iter) fetch() {
	key := it.data.key
	if !it.data.valid {
		return
	}
	p, err := it.block()
	if err == nil && it.data.reset(p) != nil || err == nil && (!it.data.next() || !bytes.Equal(it.data.key, key)) {
		err = it.t.file.corrupt(it.index.h, kindData)
	}
	if err != nil {
		it.stop(err)
		return
	}
	it.data.key, it.released = key, false
}

func (it *Iter) block() ([]byte, error) {
	if it.opts.ReadAheadBytes > 0 && it.opts.NoCacheFill {
		return it.readAhead()
	}
	if it.opts.Gate != nil {
		return it.gated()
	}
	return it.lookup(0)
}

// readAhead is block for an iterator that reads ahead. It enters the Gate with the stored size
// before the read and, for a larger compressed block, with its raw size after the read.
func (it *Iter) readAhead() ([]byte, error) {
	known := max(GateBytes, it.index.h.stored)
	if it.opts.Gate != nil && known > GateBytes {
		if err := it.opts.Gate.Enter(known); err != nil {
			return nil, err
		}
	}
	p, err := it.ahead.block(it.t, &it.index, it.opts.ReadAheadBytes)
	if it.opts.Gate != nil && len(p) > known {
		if err := it.opts.Gate.Enter(len(p)); err != nil {
			return nil, err
		}
	}
	return p, err
}

func (it *Iter) lookup(rawMax int) ([]byte, error) {
	began := time.Time{}
	p, missed, err := it.t.lookup(it.index.h, kindData, !it.opts.NoCacheFill, rawMax, it.timer(&began))
	if it.reads.Blocks++; missed {
		it.missed = true
		if it.reads.Missed++; !began.IsZero() {
			it.reads.add(began)
		}
	}
	return p, err
}

// gated is block with a Gate. The raw size of a compressed block is known only after its frame is
// read, so the Gate may be entered twice.
func (it *Iter) gated() ([]byte, error) {
	known := GateBytes
	if h := it.index.h; h.stored > known {
		known = h.stored
		if err := it.opts.Gate.Enter(known); err != nil {
			return nil, err
		}
	}
	p, err := it.lookup(known)
	large, tooLarge := err.(*largeBlock)
	switch {
	case tooLarge:
		if err := it.opts.Gate.Enter(large.raw); err != nil {
			return nil, err
		}
		return it.lookup(0)
	case len(p) > known: // the cache had it
		if err := it.opts.Gate.Enter(len(p)); err != nil {
			return nil, err
		}
	}
	return p, err
}

// stop ends the iteration, with an error or at the end of the table.
func (it *Iter) stop(err error) bool {
	it.err = err
	it.loaded, it.single, it.released = false, false, false
	it.data.valid, it.data.key, it.data.value = false, nil, nil
	return false
}
