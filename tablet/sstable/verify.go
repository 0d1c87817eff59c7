package sstable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// VerifyOptions say what Verify knows of the file beyond its format.
type VerifyOptions struct {
	// Name of the file for errors.
	Name string
	// FilterPrefixes returns the function that the filter was made with,
	// by Meta.FilterName, or nil if it does not know the name. If it is nil
	// itself, the filter's blocks are read and what is in them is not
	// compared with the keys.
	FilterPrefixes func(filterName string) func(key []byte, dst []int) []int
	// Entry is called with every sound entry, in order; what it returns is
	// reported as a *CorruptError at the entry's block. May be nil.
	Entry func(key, value []byte) error
}

// VerifyStats is what Verify looked at.
type VerifyStats struct {
	Bytes    int64 // that were read and are sound
	Blocks   int   // of all kinds
	Entries  uint64
	Prefixes uint64 // that were looked up in the filter
	Problems int    // reported
}

// Verify reads all of a table and calls report with each thing that is
// wrong: any block, header or footer with a wrong checksum; bytes that belong
// to no block; keys out of order, in a block or between blocks; separators
// that do not separate; counts, sizes, and first and last key other than the
// properties say; prefixes that the filter denies. It goes on behind what is
// broken as far as the index leads.
//
// What is reported is a *CorruptError or a *VersionError. The error that
// Verify returns is ctx's or the Source's, when it could not go on; nil, even
// if there are problems.
func Verify(ctx context.Context, src Source, opts VerifyOptions, report func(error)) (VerifyStats, error) {
	v := verifier{ctx: ctx, opts: opts, report: report}
	t, err := Open(ctx, src, OpenOptions{Name: opts.Name, IndexBytesMax: -1})
	if err == nil {
		v.t = t
		err = v.all()
	}
	if err != nil {
		err = v.note(err)
	}
	return v.stats, err
}

// verifier is one run of Verify.
type verifier struct {
	ctx      context.Context
	t        *Table
	opts     VerifyOptions
	report   func(error)
	stats    VerifyStats
	prefixes func(key []byte, dst []int) []int
	lens     []int

	end    int64 // of the block looked at last
	meta   Meta  // counted anew
	prev   []byte
	broken bool // blocks were skipped: counts mean nothing
}

// note reports err if it is about the bytes of the file, and returns it if
// it is not.
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

func (v *verifier) all() error {
	t := v.t
	if v.opts.FilterPrefixes != nil && t.filter != nil {
		v.prefixes = v.opts.FilterPrefixes(t.meta.FilterName)
	}
	if err := v.header(); err != nil {
		return err
	}
	v.end = headerBytes
	if err := v.index(); err != nil {
		return err
	}
	if v.broken {
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
	if err == nil {
		v.stats.Bytes += headerBytes
		return nil
	}
	var version *VersionError
	if errors.As(err, &version) {
		version.File = v.t.file.name
	}
	return v.note(err)
}

// index walks over the index blocks and all that they point to.
func (v *verifier) index() error {
	x := &v.t.index
	if !x.deep {
		return v.leaf(x.root)
	}
	for r := range x.root.entries {
		sep, h, err := entryAt(x.root, r, x.limit)
		if err != nil {
			v.broken = true
			if err := v.note(v.t.corruptIndex()); err != nil {
				return err
			}
			continue
		}
		leaf, err := v.t.file.readBlock(h, kindIndex)
		if err == nil && (leaf.entries == 0 || leaf.numRestarts() != leaf.entries) {
			err = v.t.file.corrupt(h, kindIndex)
		}
		if err != nil {
			v.broken = true
			if err := v.note(err); err != nil {
				return err
			}
			continue
		}
		if first, ok := leaf.wholeKey(0); !ok || !bytes.Equal(first, sep) {
			if err := v.bad(h, "index root and index block differ in the separator"); err != nil {
				return err
			}
		}
		v.stats.Blocks++
		v.stats.Bytes += int64(h.stored) + trailerBytes
		if err := v.leaf(leaf); err != nil {
			return err
		}
	}
	return nil
}

// leaf walks over the data blocks of an index block.
func (v *verifier) leaf(leaf *block) error {
	for i := range leaf.entries {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		sep, h, err := entryAt(leaf, i, v.t.index.limit)
		if err != nil {
			v.broken = true
			if err := v.note(v.t.corruptIndex()); err != nil {
				return err
			}
			continue
		}
		if err := v.data(sep, h); err != nil {
			return err
		}
	}
	return nil
}

// data looks at one data block.
func (v *verifier) data(sep []byte, h handle) error {
	if h.off != v.end && !v.broken {
		if err := v.bad(h, "data block does not follow the one before, which ends at offset %d", v.end); err != nil {
			return err
		}
	}
	v.end = h.end()
	b, err := v.t.file.readBlock(h, kindData)
	if err != nil {
		v.broken = true
		return v.note(err)
	}
	v.stats.Blocks++
	v.stats.Bytes += int64(h.stored) + trailerBytes
	v.meta.DataBlocks++
	v.meta.DataBytes += uint64(h.stored) + trailerBytes
	if len(v.prev) > 0 && bytes.Compare(sep, v.prev) <= 0 {
		if err := v.bad(h, "separator is not above the key before its block"); err != nil {
			return err
		}
	}
	return v.entries(b, sep, h)
}

// entries looks at each entry of a data block, and at the restarts.
func (v *verifier) entries(b *block, sep []byte, h handle) error {
	var it blockIter
	it.reset(b)
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
	if it.bad || n != b.entries || restarts != b.numRestarts() {
		v.broken = true
		return v.bad(h, "data block does not hold the entries that it says")
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

// totals compares what was counted with the properties.
func (v *verifier) totals() error {
	m, h := v.t.meta, handle{off: v.t.index.limit}
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
			if err := v.bad(h, "%d %s, the properties say %d", c.got, c.what, c.want); err != nil {
				return err
			}
		}
	}
	if v.stats.Entries > 0 && (!bytes.Equal(v.meta.FirstKey, m.FirstKey) || !bytes.Equal(v.prev, m.LastKey)) {
		return v.bad(h, "first or last key differs from the properties")
	}
	return nil
}
