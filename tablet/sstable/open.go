package sstable

import (
	"context"
	"errors"

	"github.com/steledb/stele/tablet/sstable/twopass"
)

// openTailBytes is the size of Open's first read, at the end of the file. 32 KiB has footer,
// directory, properties and the index of an ordinary file, so most files open with that read and
// one for the filter.
const openTailBytes = 32 << 10

// openRunBytes bounds one read of filter or index blocks.
const openRunBytes = 4 << 20

// opener is the state of Open.
type opener struct {
	t        *Table
	ctx      context.Context
	indexMax int64
	tail     []byte // end of the file
}

func (o *opener) open() error {
	for _, step := range []func() error{o.openTail, o.openProperties, o.openDictionary, o.openIndex, o.openFilter} {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	t := o.t
	if (t.index.root.entries == 0) != (t.meta.Entries == 0) {
		return t.file.corrupt(t.blocks[dirProperties], kindProperties)
	}
	t.account()
	return nil
}

// openTail reads the end of the file and decodes the footer and the directory.
func (o *opener) openTail() error {
	f := &o.t.file
	if f.size < headerBytes+footerBytes {
		return &CorruptError{File: f.name, Length: f.size, Reason: "file too short for an sstable"}
	}
	o.tail = make([]byte, min(f.size, openTailBytes))
	var at handle
	var version *VersionError
	err := f.fill(o.tail, f.size-int64(len(o.tail)), func(p []byte) *CorruptError {
		var err error
		at, err = decodeFooter(p[len(p)-footerBytes:], f.size)
		version = nil
		if errors.As(err, &version) {
			return nil
		}
		var bad *CorruptError
		errors.As(err, &bad)
		return bad
	})
	if err != nil {
		return err
	}
	if version != nil {
		version.File = f.name
		return version
	}
	b, err := o.block(at, kindDirectory)
	if err != nil {
		return err
	}
	o.t.directory, o.t.blocks = at, map[string]handle{}
	for i := range b.entries {
		name, h, ok := b.entry(i)
		if !ok {
			return f.corrupt(at, kindDirectory)
		}
		o.t.blocks[string(name)] = h
	}
	_, flat := o.t.blocks[dirIndex]
	_, deep := o.t.blocks[dirIndexRoot]
	if flat == deep || o.t.blocks[dirProperties].off == 0 {
		return f.corrupt(at, kindDirectory)
	}
	return nil
}

// raw returns the raw bytes of a block: from the tail if it is there and valid, otherwise by a
// separate read, for which the source may find a better replica. The result shares no memory with
// the tail.
func (o *opener) raw(h handle, k kind) ([]byte, error) {
	f := &o.t.file
	if start := f.size - int64(len(o.tail)); h.off >= start {
		frame := append([]byte(nil), o.tail[h.off-start:h.end()-start]...)
		if checkFrame(frame, h.off) == nil {
			return f.open(frame, h, k)
		}
	}
	return f.read(h, k, 0)
}

// block reads a map block with a restart for every entry. Handles in it point to blocks before it.
func (o *opener) block(h handle, k kind) (b indexBlock, err error) {
	raw, err := o.raw(h, k)
	if err != nil {
		return b, err
	}
	if err := b.parse(raw, h.off); err != nil {
		return b, o.t.file.corrupt(h, k)
	}
	return b, nil
}

func (o *opener) openProperties() error {
	h := o.t.blocks[dirProperties]
	b, err := o.block(h, kindProperties)
	if err != nil {
		return err
	}
	t := o.t
	t.meta.Size = t.file.size
	if !t.setProps(&b) || !t.meta.consistent() {
		return t.file.corrupt(h, kindProperties)
	}
	return nil
}

// openDictionary reads the dictionary, if there is one.
func (o *opener) openDictionary() error {
	f := &o.t.file
	h := o.t.blocks[dirDictionary]
	if h.off == 0 {
		return nil
	}
	p, err := o.raw(h, kindDictionary)
	if err != nil {
		return err
	}
	if f.dict, err = twopass.OpenDict(p); err != nil {
		return f.corrupt(h, kindDictionary)
	}
	return nil
}

// openIndex reads the root of the index, and all index blocks if they are to be held in memory.
func (o *opener) openIndex() error {
	t := o.t
	x := &t.index
	h, k := t.blocks[dirIndex], kindIndex
	if h.off == 0 {
		h, k, x.deep = t.blocks[dirIndexRoot], kindIndexRoot, true
	}
	var err error
	if x.root, err = o.block(h, k); err != nil {
		return err
	}
	if x.root.prepare() != nil || x.deep && x.root.entries == 0 {
		return t.file.corrupt(h, k)
	}
	if !x.deep || o.indexMax < 0 || t.meta.IndexBytes > uint64(o.indexMax) {
		return nil
	}
	hs, _ := x.root.handles()
	return o.runs(hs, kindIndex, func(raw []byte, h handle) error {
		var leaf indexBlock
		if leaf.parse(raw, x.root.limit) != nil || leaf.entries == 0 || leaf.prepare() != nil {
			return t.file.corrupt(h, kindIndex)
		}
		x.leaves = append(x.leaves, leaf)
		return nil
	})
}

func (o *opener) openFilter() error {
	t := o.t
	h := t.blocks[dirFilter]
	if h.off == 0 {
		return nil
	}
	seps, err := o.block(h, kindFilterIndex)
	if err != nil {
		return err
	}
	if seps.entries == 0 || seps.prepare() != nil {
		return t.file.corrupt(h, kindFilterIndex)
	}
	hs, _ := seps.handles()
	fl := &filter{seps: seps, parts: make([]filterPart, 0, len(hs))}
	err = o.runs(hs, kindFilter, func(raw []byte, h handle) error {
		var part filterPart
		if err := part.parse(raw); err != nil {
			return t.file.corrupt(h, kindFilter)
		}
		fl.parts = append(fl.parts, part)
		fl.memory += int64(len(raw)) + trailerBytes
		return nil
	})
	if err != nil {
		return err
	}
	t.filter = fl
	return nil
}

// runs reads blocks with as few reads as openRunBytes allows, and calls take for each.
func (o *opener) runs(hs []handle, k kind, take func(raw []byte, h handle) error) error {
	f := &o.t.file
	for len(hs) > 0 {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		n := runLen(hs, openRunBytes)
		if n == 1 {
			raw, err := o.raw(hs[0], k)
			if err != nil {
				return err
			}
			if err := take(raw, hs[0]); err != nil {
				return err
			}
			hs = hs[1:]
			continue
		}
		p, err := f.readRun(hs[:n])
		if err != nil {
			return err
		}
		for _, h := range hs[:n] {
			at := h.off - hs[0].off
			raw, err := f.open(p[at:at+int64(h.stored)+trailerBytes], h, k)
			if err != nil {
				return err
			}
			if err := take(raw, h); err != nil {
				return err
			}
		}
		hs = hs[n:]
	}
	return nil
}

// account computes the memory that the table holds.
func (t *Table) account() {
	// 1 KiB: the table itself and the maps in it.
	n := int64(1<<10) + t.index.root.memory()
	for i := range t.index.leaves {
		n += t.index.leaves[i].memory()
	}
	if t.filter != nil {
		n += t.filter.memory + t.filter.seps.memory() + 56*int64(len(t.filter.parts))
	}
	if t.file.dict != nil {
		n += t.file.dict.MemoryBytes()
	}
	for name, value := range t.props {
		n += int64(len(name)+len(value)) + 64
	}
	t.memory = n + int64(len(t.meta.FirstKey)+len(t.meta.LastKey))
}
