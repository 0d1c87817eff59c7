package sstable

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sstable/twopass"
)

// kind is the type of a block. The numbers are stored in files: append only.
type kind uint8

const (
	kindData        kind = 1
	kindIndex       kind = 2 // separators of data blocks
	kindIndexRoot   kind = 3 // separators of index blocks
	kindFilter      kind = 4
	kindFilterIndex kind = 5
	kindProperties  kind = 6
	kindDirectory   kind = 7
	kindDictionary  kind = 8 // of two-pass compression
)

func (k kind) String() string {
	switch k {
	case kindData:
		return "data block"
	case kindIndex:
		return "index block"
	case kindIndexRoot:
		return "index root"
	case kindFilter:
		return "filter block"
	case kindFilterIndex:
		return "filter index"
	case kindProperties:
		return "properties block"
	case kindDirectory:
		return "directory block"
	case kindDictionary:
		return "dictionary block"
	}
	return "block of unknown kind"
}

// trailerBytes is the size of the trailer after a block's stored bytes: kind u8, compression u8,
// raw length u32, stored length u32, checksum u32.
const trailerBytes = 14

// handle is the place of a block. The trailer follows the stored bytes.
type handle struct {
	off        int64
	stored     int // length of the stored bytes, without the trailer
	compressed bool
}

func (h handle) end() int64 { return h.off + int64(h.stored) + trailerBytes }

// appendHandle appends offset and stored length<<1 | compressed as uvarints.
func appendHandle(p []byte, h handle) []byte {
	p = binary.AppendUvarint(p, uint64(h.off))
	n := uint64(h.stored) << 1
	if h.compressed {
		n |= 1
	}
	return binary.AppendUvarint(p, n)
}

// decodeHandle decodes a handle. It must fill p, and the block must end at or before limit.
func decodeHandle(p []byte, limit int64) (handle, bool) {
	off, n := binary.Uvarint(p)
	if n <= 0 {
		return handle{}, false
	}
	stored, m := binary.Uvarint(p[n:])
	if m <= 0 || n+m != len(p) {
		return handle{}, false
	}
	h := handle{int64(off), int(stored >> 1), stored&1 == 1}
	if off < headerBytes || off > uint64(limit) || stored>>1 > blockRawMax || h.end() > limit {
		return handle{}, false
	}
	return h, true
}

// checksum covers the stored bytes, the trailer up to the checksum, and the block's own offset,
// which detects a block at the wrong place.
func checksum(stored, trailer []byte, off int64) uint32 {
	var tail [trailerBytes - 4 + 8]byte
	copy(tail[:], trailer[:trailerBytes-4])
	binary.LittleEndian.PutUint64(tail[trailerBytes-4:], uint64(off))
	return crc.Update(crc.Update(0, stored), tail[:])
}

// appendTrailer appends to p the trailer of a block at offset off.
func appendTrailer(p, stored []byte, k kind, c table.Compression, raw int, off int64) []byte {
	start := len(p)
	p = append(p, byte(k), byte(c))
	p = binary.LittleEndian.AppendUint32(p, uint32(raw))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(stored)))
	p = append(p, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(p[len(p)-4:], checksum(stored, p[start:], off))
	return p
}

// checkFrame verifies the checksum of a frame.
func checkFrame(frame []byte, off int64) *CorruptError {
	stored, trailer := frame[:len(frame)-trailerBytes], frame[len(frame)-trailerBytes:]
	want := binary.LittleEndian.Uint32(trailer[trailerBytes-4:])
	if got := checksum(stored, trailer, off); got != want {
		return &CorruptError{Offset: off, Length: int64(len(frame)), Reason: "block checksum differs", Got: got, Want: want}
	}
	return nil
}

// rawBytes returns the raw length in a frame's trailer.
func rawBytes(frame []byte, h handle) int { return int(binary.LittleEndian.Uint32(frame[h.stored+2:])) }

// openFrame returns the raw bytes of a frame whose checksum was verified. The result aliases the
// frame if the block is not compressed, and is new memory otherwise. dict is the file's dictionary
// for data blocks.
func openFrame(frame []byte, h handle, k kind, dict *twopass.Dict) ([]byte, *CorruptError) {
	stored, trailer := frame[:h.stored:h.stored], frame[h.stored:]
	raw := int64(rawBytes(frame, h))
	bad := func(reason string) ([]byte, *CorruptError) {
		return nil, &CorruptError{Offset: h.off, Length: int64(len(frame)), Reason: reason}
	}
	switch {
	case kind(trailer[0]) != k:
		return bad(kind(trailer[0]).String() + " instead of a " + k.String())
	case int64(binary.LittleEndian.Uint32(trailer[6:])) != int64(h.stored):
		return bad(k.String() + " length differs from its handle")
	case raw > blockRawMax:
		return bad(k.String() + " above the size limit")
	}
	c := table.Compression(trailer[1])
	if h.compressed != (c != table.CompressionNone) {
		return bad(k.String() + " compression differs from its handle")
	}
	if c == table.CompressionNone {
		if raw != int64(h.stored) {
			return bad(k.String() + " has a wrong raw length")
		}
		return stored, nil
	}
	if c == table.CompressionTwoPass && k != kindData {
		return bad(k.String() + " with the compression of data blocks")
	}
	p, reason := decompress(c, stored, int(raw), dict)
	if reason != "" {
		return bad(k.String() + ": " + reason)
	}
	return p, nil
}

// decompress returns the raw bytes in new memory of exactly raw bytes, which the caller has
// bounded, or the reason for a failure.
func decompress(c table.Compression, stored []byte, raw int, dict *twopass.Dict) ([]byte, string) {
	switch c {
	case table.CompressionS2:
		if n, err := s2.DecodedLen(stored); err != nil || n != raw {
			return nil, "s2 length differs from the trailer's"
		}
		p, err := s2.Decode(make([]byte, raw), stored)
		if err != nil {
			return nil, "malformed s2"
		}
		return p, ""
	case table.CompressionZstd:
		// The zstd frame must agree with the trailer before memory is allocated. Only small frames
		// do not state their size.
		var h zstd.Header
		if h.Decode(stored) != nil || h.HasFCS && h.FrameContentSize != uint64(raw) || !h.HasFCS && raw >= 256 {
			return nil, "zstd length differs from the trailer's"
		}
		p, err := zstdDecoder().DecodeAll(stored, make([]byte, 0, raw))
		if err != nil || len(p) != raw {
			return nil, "malformed zstd"
		}
		return p, ""
	case table.CompressionTwoPass:
		if raw > twopass.DecodedMax(len(stored)) {
			return nil, "two-pass length is too large for its bytes"
		}
		p := make([]byte, raw)
		if err := dict.Decode(p, stored); errors.Is(err, twopass.ErrNoDict) {
			return nil, "two-pass block of another dictionary"
		} else if err != nil {
			return nil, "malformed two-pass block"
		}
		return p, ""
	}
	return nil, "unknown compression"
}

// scratch has buffers for stored bytes that are needed only for decompression.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

func getScratch(n int) *[]byte {
	p := scratch.Get().(*[]byte)
	if cap(*p) < n {
		*p = make([]byte, n)
	}
	*p = (*p)[:n]
	return p
}

func putScratch(p *[]byte) {
	if cap(*p) <= bufferKeepBytes {
		scratch.Put(p)
	}
}
