package sstable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// VerifyOptions are options of Verify.
type VerifyOptions struct {
	// Name of the file in errors.
	Name string
	// FilterPrefixes returns the function that the filter was built with, by Meta.FilterName, or
	// nil for an unknown name. If FilterPrefixes itself is nil, the filter blocks are read but not
	// compared with the keys.
	FilterPrefixes func(filterName string) func(key []byte, dst []int) []int
	// Entry is called for every valid entry, in order. Its error is reported as a *CorruptError at
	// the entry's block. May be nil.
	Entry func(key, value []byte) error
}

// VerifyStats counts what Verify has checked.
type VerifyStats struct {
	Bytes    int64 // the file's size, unless parts could not be reached
	Blocks   int   // of all kinds
	Entries  uint64
	Prefixes uint64 // looked up in the filter
	Problems int    // defects reported
}

// Verify reads all of a table and calls report with each defect: a block, header or footer with a
// wrong checksum; bytes that belong to no block; keys out of order, within a block or between
// blocks; wrong separators; counts, sizes, first key or last key that differ from the properties;
// prefixes missing in the filter. It continues after a defect as far as the index allows.
//
// Reported errors are *CorruptError and *VersionError. Verify itself returns ctx's or the Source's
// error if it cannot continue, otherwise nil, even if it reported defects.
func Verify(ctx context.Context, src Source, opts VerifyOptions, report func(error)) (VerifyStats, error) {
	t := &Table{file: file{src: src, name: opts.Name, size: src.Size()}}
	v := verifier{ctx: ctx, t: t, opts: opts, report: report, counted: true}
	err := v.all()
	return v.stats, err
}

// verifier is the state of Verify.
type verifier struct {
	ctx      context.Context
	t        *Table
	opts     VerifyOptions
	report   func(error)
	stats    VerifyStats
	prefixes func(key []byte, dst []int) []int
	lens     []int

	end     int64 // of the previous block; -1 if unknown
	meta    Meta  // as counted
	prev    []byte
	counted bool // nothing was skipped, so the counts are valid
}

// note reports err if it is about the content of the file, and returns it otherwise.
func (v *verifier) note(err error) error {
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
		return err
	}
	v.stats.Problems++
	v.report(err)
	return nil
}

func (v *verifier) bad(h handle, format string, args ...any) error {
	return v.note(&CorruptError{File: v.t.file.name, Offset: h.off, Length: int64(h.stored) + trailerBytes,
		Reason: fmt.Sprintf(format, args...)})
}

// skip is note for a block that cannot be read.
func (v *verifier) skip(err error) error {
	v.counted = false
	return v.note(err)
}

// all checks the file in the order of its bytes.
func (v *verifier) all() error {
	t := v.t
	if err := v.ctx.Err(); err != nil {
		return err
	}
	if t.file.size >= headerBytes {
		if err := v.header(); err != nil {
			return err
		}
	}
	o := opener{t: t, ctx: v.ctx, indexMax: -1}
	if err := o.openTail(); err != nil {
		return v.note(err)
	}
	if err := o.openProperties(); err != nil {
		if err := v.skip(err); err != nil {
			return err
		}
	}
	if err := o.openDictionary(); err != nil {
		if err := v.skip(err); err != nil {
			return err
		}
	}
	if err := o.openFilter(); err != nil {
		if err := v.skip(err); err != nil {
			return err
		}
	} else if t.filter != nil && v.opts.FilterPrefixes != nil {
		v.prefixes = v.opts.FilterPrefixes(t.meta.FilterName)
	}
	if err := o.openIndex(); err != nil {
		return v.skip(err)
	}
	v.end = headerBytes
	if err := v.index(); err != nil {
		return err
	}
	if err := v.rest(); err != nil {
		return err
	}
	if !v.counted {
		return nil
	}
	return v.totals()
}

func (v *verifier) header() error {
	var other error
	err := v.t.file.fill(make([]byte, headerBytes), 0, func(p []byte) *CorruptError {
		var bad *CorruptError
		if other = checkHeader(p); errors.As(other, &bad) {
			return bad
		}
		return nil
	})
	if err == nil {
		err = other
	}
	v.stats.Bytes += headerBytes
	if err == nil {
		return nil
	}
	var version *VersionError
	if errors.As(err, &version) {
		version.File = v.t.file.name
	}
	return v.note(err)
}

// follows counts the block at h and checks that it directly follows the previous one.
func (v *verifier) follows(h handle, k kind) error {
	v.stats.Blocks++
	v.stats.Bytes += int64(h.stored) + trailerBytes
	end := v.end
	v.end = h.end()
	if end >= 0 && h.off != end {
		return v.bad(h, "%s does not follow the previous block, which ends at offset %d", k, end)
	}
	return nil
}

// index walks over the index blocks and the data blocks that they point to.
func (v *verifier) index() error {
	x := &v.t.index
	if !x.deep {
		return v.leaf(&x.root)
	}
	for r := range x.root.entries {
		sep, h, _ := x.root.entry(r)
		var leaf indexBlock
		p, err := v.t.file.read(h, kindIndex, 0)
		if err == nil && (leaf.parse(p, x.root.limit) != nil || leaf.entries == 0 || leaf.prepare() != nil) {
			err = v.t.file.corrupt(h, kindIndex)
		}
		if err != nil {
			v.end = -1
			if err := v.skip(err); err != nil {
				return err
			}
			continue
		}
		if first, ok := leaf.wholeKey(0); !ok || !bytes.Equal(first, sep) {
			if err := v.bad(h, "first separator of the index block differs from the root"); err != nil {
				return err
			}
		}
		if err := v.leaf(&leaf); err != nil {
			return err
		}
	}
	return nil
}

// leaf walks over the data blocks of an index block.
func (v *verifier) leaf(leaf *indexBlock) error {
	for i := range leaf.entries {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		sep, h, _ := leaf.entry(i)
		if err := v.follows(h, kindData); err != nil {
			return err
		}
		p, err := v.t.file.read(h, kindData, 0)
		if err != nil {
			if err := v.skip(err); err != nil {
				return err
			}
			continue
		}
		v.meta.DataBlocks++
		v.meta.DataBytes += uint64(h.stored) + trailerBytes
		if v.stats.Entries > 0 && bytes.Compare(sep, v.prev) <= 0 {
			if err := v.bad(h, "separator is not above the key before its block"); err != nil {
				return err
			}
		}
		if err := v.entries(p, sep, h); err != nil {
			return err
		}
	}
	return nil
}

// entries checks each entry of a data block, and the restarts.
func (v *verifier) entries(p, sep []byte, h handle) error {
	var it blockIter
	if it.reset(p) != nil {
		return v.skip(v.t.file.corrupt(h, kindData))
	}
	b := &it.b
	n, restarts := 0, 0
	for {
		if restarts < b.numRestarts() {
			if k, val := b.restart(restarts); k == it.keyOff && val == it.valueOff {
				restarts++
			}
		}
		if !it.next() {
			break
		}
		n++
		if n == 1 && bytes.Compare(it.key, sep) < 0 {
			if err := v.bad(h, "key below the separator of its block"); err != nil {
				return err
			}
		}
		if err := v.entry(&it, h); err != nil {
			return err
		}
	}
	if it.bad || n == 0 || n != b.entries || restarts != b.numRestarts() {
		return v.skip(v.t.file.corrupt(h, kindData))
	}
	return nil
}

func (v *verifier) entry(it *blockIter, h handle) error {
	if v.stats.Entries == 0 {
		v.meta.FirstKey = bytes.Clone(it.key)
	} else if bytes.Compare(it.key, v.prev) <= 0 {
		if err := v.bad(h, "key %.64q is not above the key before it, %.64q", it.key, v.prev); err != nil {
			return err
		}
	}
	v.stats.Entries++
	v.meta.RawBytes += uint64(len(it.key) + len(it.value))
	v.prev = append(v.prev[:0], it.key...)
	if v.prefixes != nil {
		v.lens = v.prefixes(it.key, v.lens[:0])
		for _, n := range v.lens {
			v.stats.Prefixes++
			if n < 1 || n > len(it.key) || !v.t.MayContain(it.key[:n]) {
				if err := v.bad(h, "filter denies a prefix of %d bytes of key %.64q", n, it.key); err != nil {
					return err
				}
			}
		}
	}
	if v.opts.Entry != nil {
		if err := v.opts.Entry(it.key, it.value); err != nil {
			return v.bad(h, "entry %d: %v", v.stats.Entries-1, err)
		}
	}
	return nil
}

// rest checks that the blocks after the data blocks fill the file up to the footer. They were read
// and verified when they were opened.
func (v *verifier) rest() error {
	t := v.t
	type part struct {
		h handle
		k kind
	}
	var parts []part
	if h, ok := t.blocks[dirDictionary]; ok {
		parts = append(parts, part{h, kindDictionary})
	}
	if h, ok := t.blocks[dirFilter]; ok {
		if t.filter == nil {
			v.end = -1
		} else {
			hs, _ := t.filter.seps.handles()
			for _, h := range hs {
				parts = append(parts, part{h, kindFilter})
			}
		}
		parts = append(parts, part{h, kindFilterIndex})
	}
	if t.index.deep {
		hs, _ := t.index.root.handles()
		for _, h := range hs {
			parts = append(parts, part{h, kindIndex})
		}
		parts = append(parts, part{t.blocks[dirIndexRoot], kindIndexRoot})
	} else {
		parts = append(parts, part{t.blocks[dirIndex], kindIndex})
	}
	parts = append(parts, part{t.blocks[dirProperties], kindProperties}, part{t.directory, kindDirectory})
	for _, p := range parts {
		if err := v.follows(p.h, p.k); err != nil {
			return err
		}
	}
	v.stats.Bytes += footerBytes
	if v.end != t.file.size-footerBytes {
		return v.bad(handle{off: v.end}, "bytes that belong to no block")
	}
	return nil
}

// totals compares the counts with the properties.
func (v *verifier) totals() error {
	m, h := v.t.meta, v.t.blocks[dirProperties]
	for _, c := range []struct {
		what      string
		got, want uint64
	}{
		{"entries", v.stats.Entries, m.Entries},
		{"raw bytes", v.meta.RawBytes, m.RawBytes},
		{"data blocks", v.meta.DataBlocks, m.DataBlocks},
		{"data bytes", v.meta.DataBytes, m.DataBytes},
	} {
		if c.got != c.want {
			if err := v.bad(h, "%d %s, the properties have %d", c.got, c.what, c.want); err != nil {
				return err
			}
		}
	}
	if v.stats.Entries > 0 && (!bytes.Equal(v.meta.FirstKey, m.FirstKey) || !bytes.Equal(v.prev, m.LastKey)) {
		return v.bad(h, "first or last key differs from the properties")
	}
	return nil
}
