package raftmeta

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
)

// The layout of a snapshot stream is drawn in doc.go.
const (
	streamMagic       = "STELENSP"
	streamVersion     = 1
	streamHeaderBytes = 8 + 4 + 4
	frameHeaderBytes  = 4 + 4

	// frameBytes ends a frame once its records have this size: large enough
	// that the checksum and the call cost nothing beside the copy.
	frameBytes = 64 << 10
	// nodeBytesMax bounds one node's record.
	nodeBytesMax = FileBytesMax + PathBytesMax + 64
	// frameBytesMax bounds a frame, and with it the reader's buffer.
	frameBytesMax = frameBytes + nodeBytesMax
)

// Kinds of records in a snapshot. Numbers are append-only.
const (
	recordNode = 1
	recordEnd  = 2
)

// frameWriter writes the stream's frames.
type frameWriter struct {
	w   io.Writer
	sum uint32 // CRC-32C of all bytes before the current frame's checksum
	enc *wire.Encoder
	err error
}

// writeSnapshot writes ns to w, as of the command at index applied.
func writeSnapshot(w io.Writer, ns *namespace, applied uint64) error {
	fw := &frameWriter{w: w, enc: wire.GetEncoder()}
	defer fw.enc.Release()
	fw.header()
	ns.nodes.Ascend(func(n *node) bool {
		fw.node(n)
		if fw.enc.Len() >= frameBytes {
			fw.flush()
		}
		return fw.err == nil
	})
	fw.enc.Array(4)
	fw.enc.Uint(recordEnd)
	fw.enc.Uint(applied)
	fw.enc.Uint(uint64(ns.nodes.Len()))
	fw.enc.Uint(uint64(ns.bytes))
	fw.flush()
	return fw.err
}

func (fw *frameWriter) header() {
	b := make([]byte, 0, streamHeaderBytes)
	b = append(b, streamMagic...)
	b = binary.BigEndian.AppendUint32(b, streamVersion)
	fw.sum = crc.Sum(b)
	b = binary.BigEndian.AppendUint32(b, fw.sum)
	_, fw.err = fw.w.Write(b)
}

func (fw *frameWriter) node(n *node) {
	e := fw.enc
	e.Array(6)
	e.Uint(recordNode)
	e.Str(n.path)
	e.Bool(n.dir)
	e.Uint(n.instance)
	e.Uint(n.generation)
	e.Bin(n.data)
}

// flush writes the records gathered so far as one frame.
func (fw *frameWriter) flush() {
	if fw.err != nil {
		return
	}
	payload := fw.enc.Bytes()
	var h [frameHeaderBytes]byte
	binary.BigEndian.PutUint32(h[:4], uint32(len(payload)))
	fw.sum = crc.Update(fw.sum, h[:4])
	fw.sum = crc.Update(fw.sum, payload)
	binary.BigEndian.PutUint32(h[4:], fw.sum)
	if _, fw.err = fw.w.Write(h[:]); fw.err == nil {
		_, fw.err = fw.w.Write(payload)
	}
	fw.enc.Reset()
}

// errBadSnapshot means that bytes are no snapshot, or not a whole one.
var errBadSnapshot = errors.New("malformed snapshot")

// streamError locates what is wrong with a snapshot stream.
type streamError struct {
	offset int64 // of the frame, in bytes from the start of the stream
	err    error
}

func (e *streamError) Error() string {
	return fmt.Sprintf("read snapshot at offset %d: %v", e.offset, e.err)
}

func (e *streamError) Unwrap() error { return e.err }

// frameReader reads the stream's frames. Its memory is bounded by
// frameBytesMax.
type frameReader struct {
	r   *bufio.Reader
	off int64 // of the next byte
	sum uint32
	buf []byte
}

// readSnapshot reads what writeSnapshot wrote: the namespace, and the index of
// the last command in it. It reads to the end of r, and takes no more memory
// than the namespace it returns and one frame. The error is a *streamError.
func readSnapshot(r io.Reader) (*namespace, uint64, error) {
	fr := &frameReader{r: bufio.NewReaderSize(r, frameBytes)}
	if err := fr.header(); err != nil {
		return nil, 0, &streamError{0, err}
	}
	b := &builder{}
	b.ns = newNamespace()
	for !b.ended {
		at := fr.off
		payload, err := fr.frame()
		if err == nil {
			err = b.frame(payload)
		}
		if err != nil {
			return nil, 0, &streamError{at, err}
		}
	}
	switch _, err := fr.r.ReadByte(); err {
	case io.EOF:
		return b.ns, b.applied, nil
	case nil:
		return nil, 0, &streamError{fr.off, fmt.Errorf("%w: bytes after the end", errBadSnapshot)}
	default:
		return nil, 0, &streamError{fr.off, err}
	}
}

func (fr *frameReader) header() error {
	var b [streamHeaderBytes]byte
	if err := fr.fill(b[:]); err != nil {
		return err
	}
	if string(b[:8]) != streamMagic {
		return fmt.Errorf("%w: bad magic", errBadSnapshot)
	}
	fr.sum = crc.Sum(b[:12])
	if got := binary.BigEndian.Uint32(b[12:]); got != fr.sum {
		return fmt.Errorf("%w: header checksum is %08x, not %08x", errBadSnapshot, got, fr.sum)
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != streamVersion {
		return &VersionError{What: "snapshot stream", Version: uint64(v), Known: streamVersion}
	}
	return nil
}

// fill reads len(b) bytes. An end of the stream before them is an error: only
// the end record ends a snapshot.
func (fr *frameReader) fill(b []byte) error {
	n, err := io.ReadFull(fr.r, b)
	fr.off += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it is cut short", errBadSnapshot)
	}
	return err
}

// frame returns the next frame's payload, valid until the next call.
func (fr *frameReader) frame() ([]byte, error) {
	var h [frameHeaderBytes]byte
	if err := fr.fill(h[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(h[:4])
	if n > frameBytesMax {
		return nil, fmt.Errorf("%w: frame of %d bytes, at most %d", errBadSnapshot, n, frameBytesMax)
	}
	if cap(fr.buf) < int(n) {
		fr.buf = make([]byte, n)
	}
	payload := fr.buf[:n]
	if err := fr.fill(payload); err != nil {
		return nil, err
	}
	fr.sum = crc.Update(fr.sum, h[:4])
	fr.sum = crc.Update(fr.sum, payload)
	if got := binary.BigEndian.Uint32(h[4:]); got != fr.sum {
		return nil, fmt.Errorf("%w: frame checksum is %08x, not %08x", errBadSnapshot, got, fr.sum)
	}
	return payload, nil
}

// builder makes a namespace from records, and checks that they make one.
type builder struct {
	ns      *namespace
	last    *node
	dir     *node // the directory of the last node
	applied uint64
	ended   bool
}

// frame takes one frame's records.
func (b *builder) frame(payload []byte) error {
	d := wire.NewDecoder(payload)
	for d.More() {
		if b.ended {
			return fmt.Errorf("%w: records after the end", errBadSnapshot)
		}
		n := d.Array()
		switch kind := d.Uint(); {
		case kind == recordNode && n == 6:
			if err := b.node(&d); err != nil {
				return err
			}
		case kind == recordEnd && n == 4:
			if err := b.end(&d); err != nil {
				return err
			}
		case d.Err() == nil:
			return fmt.Errorf("%w: record of kind %d with %d values", errBadSnapshot, kind, n)
		}
	}
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", errBadSnapshot, d.Err())
	}
	return nil
}

// node takes one node's record. Nodes come in the tree's order, each after its
// directory.
func (b *builder) node(d *wire.Decoder) error {
	path := d.Str()
	if err := checkDir(path); err != nil {
		return fmt.Errorf("%w: %w", errBadSnapshot, err)
	}
	n := newNode(path)
	n.dir = d.Bool()
	n.instance, n.generation = d.Uint(), d.Uint()
	data := d.Bytes()
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", errBadSnapshot, d.Err())
	}
	if len(data) > FileBytesMax || n.dir && len(data) > 0 || n.generation < n.instance {
		return fmt.Errorf("%w: node %s is impossible", errBadSnapshot, n.path)
	}
	if !n.dir {
		n.data = append(make([]byte, 0, len(data)), data...)
	}
	if b.last == nil {
		if n.path != root || !n.dir {
			return fmt.Errorf("%w: begins with %s", errBadSnapshot, n.path)
		}
		b.ns.nodes.ReplaceOrInsert(n)
		b.last, b.dir = n, n
		return nil
	}
	if !nodeLess(b.last, n) {
		return fmt.Errorf("%w: %s comes after %s", errBadSnapshot, n.path, b.last.path)
	}
	b.last = n
	return b.hang(n)
}

// hang puts n under its parent. The tree is not shared yet, so the parent may
// be changed in place.
func (b *builder) hang(n *node) error {
	if parent := n.parent(); b.dir.path != parent {
		if b.dir = b.ns.get(parent); b.dir == nil || !b.dir.dir {
			return fmt.Errorf("%w: %s has no directory", errBadSnapshot, n.path)
		}
	}
	b.dir.children++
	b.ns.nodes.ReplaceOrInsert(n)
	b.ns.bytes += n.size()
	if !n.dir {
		b.ns.files++
	}
	if b.ns.nodes.Len() > NodesMax || b.ns.bytes > NamespaceBytesMax {
		return fmt.Errorf("%w: it is over the limits of a namespace", errBadSnapshot)
	}
	return nil
}

func (b *builder) end(d *wire.Decoder) error {
	b.applied = d.Uint()
	nodes, bytes := d.Uint(), d.Uint()
	if d.Err() == nil && (b.last == nil || nodes != uint64(b.ns.nodes.Len()) || bytes != uint64(b.ns.bytes)) {
		return fmt.Errorf("%w: it has %d nodes and %d bytes, not %d and %d",
			errBadSnapshot, b.ns.nodes.Len(), b.ns.bytes, nodes, bytes)
	}
	b.ended = true
	return nil
}
