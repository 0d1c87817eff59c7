package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/crc"
)

// doc.go specifies these bytes; TestGoldenFrame checks that both agree.
const (
	preambleBytes = 8
	headerBytes   = 16
	// version is the highest version of the framed mode that this package supports.
	version = 1
	// flagsRequired masks the flags that a receiver must know; it rejects a frame with an unknown
	// one.
	flagsRequired = 0xffff0000
	// flagsKnown holds the flags that version 1 defines: none.
	flagsKnown = 0
)

var (
	// ErrPreamble means that the peer does not support the framed mode, or none of our versions of
	// it.
	ErrPreamble = errors.New("bad preamble")
	// ErrTooLarge means that a message is over the size limit.
	ErrTooLarge = errors.New("message too large")
	// ErrFlags means that a frame requires an extension that this package does not know.
	ErrFlags = errors.New("unknown required frame flag")
)

// CorruptFrameError means that a frame's checksum is wrong. Nothing of the frame was used, and the
// connection is closed.
type CorruptFrameError struct {
	Length    int // of the message, in bytes, from the frame's header
	Got, Want uint32
}

func (e *CorruptFrameError) Error() string {
	return fmt.Sprintf("corrupt frame of %d bytes: checksum %08x, want %08x", e.Length, e.Got, e.Want)
}

// frameHeader is the first 16 bytes of a frame.
type frameHeader struct {
	length    uint32 // of the message
	timeoutMS uint32 // 0: none
	flags     uint32
	crc       uint32
}

func parseHeader(b []byte) frameHeader {
	return frameHeader{
		length:    binary.LittleEndian.Uint32(b),
		timeoutMS: binary.LittleEndian.Uint32(b[4:]),
		flags:     binary.LittleEndian.Uint32(b[8:]),
		crc:       binary.LittleEndian.Uint32(b[12:]),
	}
}

// sealFrame fills in the header in the first 16 bytes of frame; the message follows them.
func sealFrame(frame []byte, timeoutMS uint32) {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-headerBytes))
	binary.LittleEndian.PutUint32(frame[4:], timeoutMS)
	binary.LittleEndian.PutUint32(frame[8:], 0)
	binary.LittleEndian.PutUint32(frame[12:], crc.Sum(frame[:12], frame[headerBytes:]))
}

// preamble returns the 8 bytes that open the framed mode.
func preamble(version byte) [preambleBytes]byte {
	return [preambleBytes]byte{'S', 'T', 'E', 'L', 'E', version, 0, '\n'}
}

// parsePreamble returns the version that both sides use.
func parsePreamble(b [preambleBytes]byte) (byte, error) {
	if string(b[:5]) != "STELE" || b[7] != '\n' || b[5] == 0 {
		return 0, fmt.Errorf("%w: % x", ErrPreamble, b)
	}
	return min(b[5], version), nil
}
