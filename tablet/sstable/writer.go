package sstable

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sstable/twopass"
)

// flushBytes is how much a Writer buffers before it calls its io.Writer. 256 KiB: few calls even
// with the smallest blocks.
const flushBytes = 256 << 10

// Writer writes one table. It is not safe for concurrent use, and can be dropped without cleanup.
//
// Its memory is one block, 256 KiB of output, the compressor's, 2.3 MiB to build a filter block if
// there is a filter, and the finished index and filter, which are as large as in the open table.
// Two-pass compression needs 16 MiB more, and about 5 MiB to find repetitions.
type Writer struct {
	opts Options
	w    io.Writer
	err  error // sticky
	done bool

	out     []byte // output not yet written to w
	written int64  // bytes written to w
	comp    compressor
	version uint32
	held    heldBlocks
	warmth  warmth

	data   blockBuilder
	sep    []byte // separator of the current block
	prev   []byte // last key
	index  indexBuilder
	filter filterBuilder

	filterSep   []byte   // separator of the current filter block
	filters     [][]byte // finished filter blocks
	filterSeps  [][]byte
	filterBytes int

	meta Meta
}

// NewWriter returns a Writer that writes a table to w sequentially. If opts are invalid, the first
// call of Add or Finish returns the error.
func NewWriter(w io.Writer, opts Options) *Writer {
	wr := &Writer{w: w, err: opts.Validate(), version: formatVersion}
	opts = opts.withDefaults()
	wr.opts = opts
	wr.warmth = newWarmth(opts.Cache)
	wr.comp.method = opts.Compression
	wr.data.interval = opts.RestartInterval
	wr.index = newIndexBuilder()
	wr.filter.prefixes = opts.FilterPrefixes
	wr.meta = Meta{BlockBytes: opts.BlockBytes, Compression: opts.Compression}
	if opts.FilterPrefixes != nil {
		wr.meta.FilterName = opts.FilterName
	}
	if opts.Compression == table.CompressionTwoPass {
		wr.comp.two = &twopass.Encoder{Worked: opts.Worked}
		wr.version = dictVersion
	}
	if opts.PartialKeys {
		wr.version = PartialVersion
	}
	wr.out = appendHeader(nil, wr.version)
	return wr
}

// Add appends an entry. Both slices may be empty and are copied. The key must be above the previous
// one in bytes.Compare order.
//
// Errors: *KeyOrderError, *TooLargeError, an error that wraps ErrBadOption, ErrFinished, or that of
// the io.Writer. They are sticky.
func (w *Writer) Add(key, value []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.done {
		return ErrFinished
	}
	shared, err := w.check(key, value)
	if err != nil {
		w.err = err
		return err
	}
	if w.meta.Entries == 0 {
		w.meta.FirstKey = bytes.Clone(key)
		if w.meta.FirstKey == nil {
			w.meta.FirstKey = []byte{}
		}
	} else if !w.data.empty() &&
		w.data.sizeWith(len(key), shared, len(value)) > w.opts.BlockBytes-trailerBytes {
		if err := w.cutData(key[:shared+1]); err != nil {
			w.err = err
			return err
		}
	}
	if w.filter.prefixes != nil {
		if err := w.filter.add(key, shared); err != nil {
			w.err = err
			return err
		}
	}
	w.data.add(key, shared, value)
	w.prev = append(w.prev[:shared], key[shared:]...)
	w.meta.Entries++
	w.meta.RawBytes += uint64(len(key) + len(value))
	return nil
}

// check returns how many bytes key shares with the previous key.
func (w *Writer) check(key, value []byte) (shared int, err error) {
	if len(key) > KeyBytesMax {
		return 0, &TooLargeError{What: "key", Limit: KeyBytesMax, Got: int64(len(key))}
	}
	if n := int64(len(key)) + int64(len(value)); n > EntryBytesMax {
		return 0, &TooLargeError{What: "entry", Limit: EntryBytesMax, Got: n}
	}
	if w.meta.Entries == 0 {
		return 0, nil
	}
	shared = commonPrefix(w.prev, key)
	if shared == len(key) || shared < len(w.prev) && key[shared] < w.prev[shared] {
		return 0, &KeyOrderError{Entry: w.meta.Entries, Prev: bytes.Clone(w.prev), Key: bytes.Clone(key)}
	}
	return shared, nil
}

// cutData writes the current data block. next is the separator of the next block: its first key,
// cut after the byte that makes it greater than the last key here; nil after the last block.
func (w *Writer) cutData(next []byte) error {
	if invariant.On && next != nil {
		above := bytes.Compare(w.prev, next) < 0
		invariant.Check(above, "the next block's separator is not above the last key, before entry %d", int64(w.meta.Entries))
	}
	raw := w.data.finish()
	if err := w.addData(raw, w.sep, w.warmth.end(len(raw))); err != nil {
		return err
	}
	w.data.reset()
	w.sep = append(w.sep[:0], next...)
	if len(w.filter.hashes) >= filterPartHashes {
		w.cutFilter()
		w.filterSep = append(w.filterSep[:0], next...)
	}
	return nil
}

// addData writes a data block, or buffers it to learn from it.
func (w *Writer) addData(raw, sep []byte, warm bool) error {
	if w.comp.two != nil && w.comp.two.Wants() && len(raw) <= w.opts.LearnBytes {
		if w.held.bytes+len(raw) > w.opts.LearnBytes {
			if err := w.release(false); err != nil {
				return err
			}
		}
		w.held.add(raw, sep, warm)
		return nil
	}
	if err := w.release(false); err != nil {
		return err
	}
	return w.writeData(raw, sep, warm)
}

// writeData writes a data block and adds it to the index.
func (w *Writer) writeData(raw, sep []byte, warm bool) error {
	h, err := w.appendCompressed(raw, kindData)
	if err != nil {
		return err
	}
	if warm {
		w.warmth.put(h.off, raw)
	}
	if w.opts.Worked != nil {
		w.opts.Worked(len(raw))
	}
	w.comp.release()
	w.index.add(sep, h)
	w.meta.DataBlocks++
	w.meta.DataBytes += uint64(h.stored + trailerBytes)
	return nil
}

// cutFilter ends the current filter block.
func (w *Writer) cutFilter() {
	p := w.filter.finish(nil)
	w.filters = append(w.filters, p)
	w.filterSeps = append(w.filterSeps, bytes.Clone(w.filterSep))
	w.filterBytes += len(p) + trailerBytes
}

// offset returns the offset of the next block.
func (w *Writer) offset() int64 { return w.written + int64(len(w.out)) }

// appendCompressed writes a block, compressed if that pays.
func (w *Writer) appendCompressed(raw []byte, k kind) (handle, error) {
	stored, c := w.comp.stored(raw, k)
	return w.appendStored(stored, k, c, len(raw))
}

// appendRaw writes a block without compression.
func (w *Writer) appendRaw(raw []byte, k kind) (handle, error) {
	return w.appendStored(raw, k, table.CompressionNone, len(raw))
}

func (w *Writer) appendStored(stored []byte, k kind, c table.Compression, raw int) (handle, error) {
	h := handle{off: w.offset(), stored: len(stored), compressed: c != table.CompressionNone}
	if len(stored) < flushBytes {
		w.out = append(w.out, stored...)
		w.out = appendTrailer(w.out, stored, k, c, raw, h.off)
		return h, w.flush(flushBytes)
	}
	// Avoid another copy of a huge value.
	if err := w.flush(0); err != nil {
		return handle{}, err
	}
	if err := w.write(stored); err != nil {
		return handle{}, err
	}
	w.out = appendTrailer(w.out, stored, k, c, raw, h.off)
	return h, nil
}

// flush writes the buffer to w if it has at least limit bytes.
func (w *Writer) flush(limit int) error {
	if len(w.out) < limit {
		return nil
	}
	err := w.write(w.out)
	w.out = w.out[:0]
	return err
}

func (w *Writer) write(p []byte) error {
	n, err := w.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write sstable at offset %d: %w", w.written, err)
	}
	w.written += int64(len(p))
	return nil
}

// Entries returns the number of entries added.
func (w *Writer) Entries() uint64 { return w.meta.Entries }

// EstimatedSize returns the approximate size of the file if it were finished now. It overestimates
// the current block, which is not compressed yet.
func (w *Writer) EstimatedSize() int64 {
	n := w.offset()
	if !w.done {
		n += int64(w.held.bytes / heldRatio)
		n += int64(w.data.size() + w.index.size() + w.filterBytes + len(w.filter.hashes)*9/8 + footerBytes)
	}
	return n
}

// MemoryBytes returns the memory of the index and the filter, in bytes. It grows with the file, to what Finish needs.
func (w *Writer) MemoryBytes() int64 {
	hash := 8 + 8 // and what builds the filter of them
	return int64(w.index.size() + w.filterBytes + len(w.filter.hashes)*hash)
}

// Finish writes the remaining blocks and returns a description of the table. props are the caller's
// properties, for Table.Properties; their names must not begin with "sstable.". The io.Writer is
// not closed.
//
// Errors: that of an earlier Add, ErrFinished, *TooLargeError, an error that wraps ErrBadOption, or
// that of the io.Writer.
func (w *Writer) Finish(props map[string][]byte) (Meta, error) {
	if w.err != nil {
		return Meta{}, w.err
	}
	if w.done {
		return Meta{}, ErrFinished
	}
	if err := checkProps(props); err != nil {
		return Meta{}, err
	}
	w.done = true
	if w.err = w.finish(props); w.err != nil {
		return Meta{}, w.err
	}
	return w.meta, nil
}

func checkProps(props map[string][]byte) error {
	var n int64
	for name, value := range props {
		if strings.HasPrefix(name, ownPrefix) {
			return fmt.Errorf("%w: property %q: names that begin with %q are reserved", ErrBadOption, name, ownPrefix)
		}
		n += int64(len(name) + len(value))
	}
	if n > PropertyBytesMax {
		return &TooLargeError{What: "properties", Limit: PropertyBytesMax, Got: n}
	}
	return nil
}

func (w *Writer) finish(props map[string][]byte) error {
	if !w.data.empty() {
		if err := w.cutData(nil); err != nil {
			return err
		}
		w.meta.LastKey = bytes.Clone(w.prev)
	}
	if err := w.release(true); err != nil {
		return err
	}
	dir := map[string][]byte{}
	if w.comp.two != nil && w.comp.two.HasDict() {
		h, err := w.appendCompressed(w.comp.two.AppendDict(nil), kindDictionary)
		if err != nil {
			return err
		}
		w.meta.DictBytes = uint64(h.stored + trailerBytes)
		dir[dirDictionary] = appendHandle(nil, h)
	}
	if w.filter.prefixes != nil {
		h, err := w.finishFilter()
		if err != nil {
			return err
		}
		dir[dirFilter] = appendHandle(nil, h)
	}
	h, err := w.finishIndex()
	if err != nil {
		return err
	}
	if len(w.index.leaves) > 1 {
		dir[dirIndexRoot] = appendHandle(nil, h)
	} else {
		dir[dirIndex] = appendHandle(nil, h)
	}
	all := w.meta.properties()
	maps.Copy(all, props)
	h, err = w.appendCompressed(mapBlock(all), kindProperties)
	if err != nil {
		return err
	}
	dir[dirProperties] = appendHandle(nil, h)
	h, err = w.appendRaw(mapBlock(dir), kindDirectory)
	if err != nil {
		return err
	}
	w.meta.Size = w.offset() + footerBytes
	w.out = appendFooter(w.out, h, w.meta.Size, w.version)
	return w.flush(0)
}

// mapBlock returns a map block with a restart for every entry.
func mapBlock(m map[string][]byte) []byte {
	b := blockBuilder{interval: 1}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		b.add([]byte(name), 0, m[name])
	}
	return b.finish()
}

// finishFilter writes the filter blocks and their index.
func (w *Writer) finishFilter() (handle, error) {
	if len(w.filter.hashes) > 0 || len(w.filters) == 0 {
		w.cutFilter()
	}
	start := w.offset()
	index := blockBuilder{interval: 1}
	var value []byte
	for i, p := range w.filters {
		h, err := w.appendRaw(p, kindFilter)
		if err != nil {
			return handle{}, err
		}
		value = appendHandle(value[:0], h)
		index.add(w.filterSeps[i], 0, value)
	}
	h, err := w.appendRaw(index.finish(), kindFilterIndex)
	w.meta.FilterBytes = uint64(w.offset() - start)
	w.meta.FilterPrefixes = w.filter.total
	return h, err
}

// finishIndex writes the index blocks and, if there are several, the root.
func (w *Writer) finishIndex() (handle, error) {
	start := w.offset()
	x := &w.index
	if !x.leaf.empty() || len(x.leaves) == 0 {
		x.cut()
	}
	root := blockBuilder{interval: 1}
	var value []byte
	var h handle
	var err error
	for i, p := range x.leaves {
		if h, err = w.appendRaw(p, kindIndex); err != nil {
			return handle{}, err
		}
		value = appendHandle(value[:0], h)
		root.add(x.leafSep[i], 0, value)
	}
	if len(x.leaves) > 1 {
		h, err = w.appendRaw(root.finish(), kindIndexRoot)
	}
	w.meta.IndexBytes = uint64(w.offset() - start)
	return h, err
}
