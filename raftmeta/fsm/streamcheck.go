package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
)

// StreamCheck verifies a snapshot stream that is written to it: the checksums of the header and of
// each frame, and that it ends with the end record. The checksums form a chain, so together they
// prove that the stream is the output of one WriteSnapshot. frameBytesMax bounds its memory.
type StreamCheck struct {
	// piece is the received part of the current header or frame, and need its size as far as known.
	piece []byte
	need  int
	off   int64 // of piece, in bytes from the start of the stream
	sum   uint32
	// ended is set after the end record.
	ended bool
	err   error
}

func NewStreamCheck() *StreamCheck { return &StreamCheck{need: streamHeaderBytes} }

// Write implements io.Writer. The error is a *StreamError.
func (c *StreamCheck) Write(p []byte) (int, error) {
	n := len(p)
	if planted.On(planted.SnapshotUnverified) {
		return n, nil
	}
	for c.err == nil && len(p) > 0 {
		take := min(c.need-len(c.piece), len(p))
		c.piece, p = append(c.piece, p[:take]...), p[take:]
		if len(c.piece) < c.need {
			break
		}
		if err := c.complete(); err != nil {
			c.err = &StreamError{c.off, err}
		}
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, nil
}

// complete verifies a piece that has need bytes. If it is only the header of a frame, complete adds
// the payload to need.
func (c *StreamCheck) complete() error {
	switch {
	case c.ended:
		return fmt.Errorf("%w: bytes after the end", ErrBadSnapshot)
	case c.off == 0:
		sum, err := checkStreamHeader([streamHeaderBytes]byte(c.piece))
		if err != nil {
			return err
		}
		c.sum = sum
	case c.need == frameHeaderBytes:
		n, err := frameLength(c.piece)
		if err != nil {
			return err
		}
		if c.need += n; n > 0 {
			return nil
		}
		fallthrough
	default:
		head, payload := c.piece[:frameHeaderBytes], c.piece[frameHeaderBytes:]
		sum, err := checkFrame(c.sum, head, payload)
		if err != nil {
			return err
		}
		c.sum = sum
		if err := c.records(payload); err != nil {
			return err
		}
	}
	c.off += int64(len(c.piece))
	c.piece, c.need = c.piece[:0], frameHeaderBytes
	return nil
}

// records looks for the end record, after which no other may follow.
func (c *StreamCheck) records(payload []byte) error {
	d := wire.NewDecoder(payload)
	for d.More() {
		if c.ended {
			return fmt.Errorf("%w: records after the end", ErrBadSnapshot)
		}
		n := d.Array()
		c.ended = d.Uint() == recordEnd
		for range n - 1 {
			d.Skip()
		}
	}
	if d.Err() != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, d.Err())
	}
	return nil
}

// End returns an error unless the stream is complete.
func (c *StreamCheck) End() error {
	if c.err == nil && (!c.ended || len(c.piece) > 0) && !planted.On(planted.SnapshotUnverified) {
		c.err = &StreamError{c.off, fmt.Errorf("%w: truncated", ErrBadSnapshot)}
	}
	return c.err
}

// checkStreamHeader verifies the header and returns its checksum, from which that of the first
// frame continues.
func checkStreamHeader(b [streamHeaderBytes]byte) (sum uint32, err error) {
	if string(b[:8]) != streamMagic {
		return 0, fmt.Errorf("%w: bad magic", ErrBadSnapshot)
	}
	sum = crc.Sum(b[:12])
	if got := binary.BigEndian.Uint32(b[12:]); got != sum {
		return 0, fmt.Errorf("%w: header checksum is %08x, not %08x", ErrBadSnapshot, got, sum)
	}
	v := binary.BigEndian.Uint32(b[8:])
	if v == 0 {
		return 0, fmt.Errorf("%w: version 0", ErrBadSnapshot)
	}
	if v > streamVersion {
		return 0, &VersionError{What: "snapshot stream", Version: uint64(v), Known: streamVersion}
	}
	return sum, nil
}

// frameLength returns the number of bytes after a frame's header.
func frameLength(head []byte) (int, error) {
	n := binary.BigEndian.Uint32(head)
	if n > frameBytesMax {
		return 0, fmt.Errorf("%w: frame of %d bytes, at most %d", ErrBadSnapshot, n, frameBytesMax)
	}
	return int(n), nil
}

// checkFrame verifies a frame, given the checksum of everything before it, and returns the checksum
// up to its end.
func checkFrame(sum uint32, head, payload []byte) (uint32, error) {
	sum = crc.Update(sum, head[:4])
	sum = crc.Update(sum, payload)
	if got := binary.BigEndian.Uint32(head[4:]); got != sum {
		return 0, fmt.Errorf("%w: frame checksum is %08x, not %08x", ErrBadSnapshot, got, sum)
	}
	return sum, nil
}
