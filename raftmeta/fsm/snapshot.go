package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta/api"
)

// doc.go specifies the snapshot stream.
const (
	streamMagic           = "STELENSP"
	streamVersion         = 4
	streamWithoutRemovals = 3 // if no directory lost a child: older programs can read it
	streamWithoutOwners   = 2 // if users hold nothing either
	streamHeaderBytes     = 8 + 4 + 4
	frameHeaderBytes      = 4 + 4

	// frameBytes is the size of the records at which a frame ends. It is large enough that checksum
	// and call cost nothing compared with the copy.
	frameBytes = 64 << 10
	// nodeBytesMax bounds the record of one node.
	nodeBytesMax = api.FileBytesMax + PathBytesMax + api.ACLBytesMax + 256
	// frameBytesMax bounds a frame, and thereby the reader's buffer.
	frameBytesMax = frameBytes + nodeBytesMax
)

// Kinds of records in a snapshot. Numbers are append-only.
const (
	recordNode     = 1
	recordEnd      = 2
	recordExtended = 3 // a node with fields that a plain one lacks
	recordSession  = 4
	recordHold     = 5
	recordOwner    = 6 // the owner of a session or a node
	recordRemoval  = 7 // the last removal in a directory
)

// frameWriter writes the frames of a stream.
type frameWriter struct {
	w   io.Writer
	sum uint32 // CRC-32C of all bytes before the current frame's checksum
	enc *wire.Encoder
	err error
}

// WriteSnapshot writes ns, as of the command at index applied, to w.
func WriteSnapshot(w io.Writer, ns *Namespace, applied uint64) error {
	fw := &frameWriter{w: w, enc: wire.GetEncoder()}
	defer fw.enc.Release()
	version := streamVersionOf(ns)
	fw.header(version)
	ns.sessions.Ascend(func(s *Session) bool {
		fw.session(s)
		return fw.more()
	})
	ns.nodes.Ascend(func(n *Node) bool {
		fw.node(n)
		return fw.more()
	})
	ns.holds.Ascend(func(h hold) bool {
		fw.hold(h)
		return fw.more()
	})
	if version > streamWithoutOwners {
		fw.owners(ns)
	}
	if version > streamWithoutRemovals {
		fw.removals(ns)
	}
	fw.end(ns, applied)
	fw.flush()
	return fw.err
}

// streamVersionOf returns the oldest version of a snapshot that has all of ns.
func streamVersionOf(ns *Namespace) uint32 {
	version := uint32(streamWithoutOwners)
	if ns.users.usages.Len() > 0 {
		version = streamWithoutRemovals
	}
	ns.nodes.Ascend(func(n *Node) bool {
		if n.removed != 0 {
			version = streamVersion
		}
		return version != streamVersion
	})
	return version
}

// more ends a frame that is large enough, and reports whether writing can continue.
func (fw *frameWriter) more() bool {
	if fw.enc.Len() >= frameBytes {
		fw.flush()
	}
	return fw.err == nil
}

func (fw *frameWriter) header(version uint32) {
	b := make([]byte, 0, streamHeaderBytes)
	b = append(b, streamMagic...)
	b = binary.BigEndian.AppendUint32(b, version)
	fw.sum = crc.Sum(b)
	b = binary.BigEndian.AppendUint32(b, fw.sum)
	_, fw.err = fw.w.Write(b)
}

// flush writes the collected records as one frame.
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

// ErrBadSnapshot means that bytes are not a complete, valid snapshot.
var ErrBadSnapshot = errors.New("malformed snapshot")

// StreamError locates an error in a snapshot stream.
type StreamError struct {
	Offset int64 // of the frame, in bytes from the start of the stream
	Err    error
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("read snapshot at offset %d: %v", e.Offset, e.Err)
}

func (e *StreamError) Unwrap() error { return e.Err }

// frameReader reads the frames of a stream. frameBytesMax bounds its memory.
type frameReader struct {
	r   *bufio.Reader
	off int64 // of the next byte
	sum uint32
	buf []byte
}

// ReadSnapshot reads the result of WriteSnapshot: the namespace, and the index of its last command.
// It reads to the end of r, and takes no more memory than the namespace and one frame. The error is
// a *StreamError.
func ReadSnapshot(r io.Reader) (*Namespace, uint64, error) {
	fr := &frameReader{r: bufio.NewReaderSize(r, frameBytes)}
	if err := fr.header(); err != nil {
		return nil, 0, &StreamError{0, err}
	}
	b := &builder{ns: NewNamespace()}
	for !b.ended {
		at := fr.off
		payload, err := fr.frame()
		if err == nil {
			err = b.frame(payload)
		}
		if err != nil {
			return nil, 0, &StreamError{at, err}
		}
	}
	switch _, err := fr.r.ReadByte(); err {
	case io.EOF:
		return b.ns, b.applied, nil
	case nil:
		return nil, 0, &StreamError{fr.off, fmt.Errorf("%w: bytes after the end", ErrBadSnapshot)}
	default:
		return nil, 0, &StreamError{fr.off, err}
	}
}

func (fr *frameReader) header() error {
	var b [streamHeaderBytes]byte
	if err := fr.fill(b[:]); err != nil {
		return err
	}
	sum, err := checkStreamHeader(b)
	fr.sum = sum
	return err
}

// fill reads len(b) bytes. A premature end of the stream is an error, because only the end record
// ends a snapshot.
func (fr *frameReader) fill(b []byte) error {
	n, err := io.ReadFull(fr.r, b)
	fr.off += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: truncated", ErrBadSnapshot)
	}
	return err
}

// frame returns the payload of the next frame, valid until the next call.
func (fr *frameReader) frame() ([]byte, error) {
	var h [frameHeaderBytes]byte
	if err := fr.fill(h[:]); err != nil {
		return nil, err
	}
	n, err := frameLength(h[:])
	if err != nil {
		return nil, err
	}
	if cap(fr.buf) < n {
		fr.buf = make([]byte, n)
	}
	payload := fr.buf[:n]
	if err := fr.fill(payload); err != nil {
		return nil, err
	}
	fr.sum, err = checkFrame(fr.sum, h[:], payload)
	return payload, err
}
