package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/steledb/stele/internal/crc"
)

const headerLen = 44

// Record is one commit as stored in the log.
type Record struct {
	Table  uint64
	Tablet uint64
	First  uint64 // sequence number of the first entry
	Ops    uint32
	Time   int64 // µs
	Body   []byte
}

// ErrBadRecord means that bytes of a log are not a valid record, although the log blob's checksums
// are right.
var ErrBadRecord = errors.New("malformed commit log record")

// appendRecord appends the encoded record.
func appendRecord(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.Body)))
	dst = binary.LittleEndian.AppendUint64(dst, r.Table)
	dst = binary.LittleEndian.AppendUint64(dst, r.Tablet)
	dst = binary.LittleEndian.AppendUint64(dst, r.First)
	dst = binary.LittleEndian.AppendUint32(dst, r.Ops)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Time))
	dst = append(dst, r.Body...)
	binary.LittleEndian.PutUint32(dst[start:], crc.Sum(dst[start+4:]))
	return dst
}

// ReadRecord decodes the first record of b and returns the bytes after it. The record's body
// aliases b. The error wraps ErrBadRecord.
func ReadRecord(b []byte) (Record, []byte, error) {
	if len(b) < headerLen {
		return Record{}, nil, fmt.Errorf("%w: %d bytes, want a header of %d", ErrBadRecord, len(b), headerLen)
	}
	length := int64(binary.LittleEndian.Uint32(b[4:]))
	if length > int64(len(b)-headerLen) {
		return Record{}, nil, fmt.Errorf("%w: body of %d bytes, %d are left", ErrBadRecord, length, len(b)-headerLen)
	}
	end := headerLen + int(length)
	if got, want := crc.Sum(b[4:end]), binary.LittleEndian.Uint32(b); got != want {
		return Record{}, nil, fmt.Errorf("%w: checksum %08x, want %08x", ErrBadRecord, got, want)
	}
	r := Record{
		Table:  binary.LittleEndian.Uint64(b[8:]),
		Tablet: binary.LittleEndian.Uint64(b[16:]),
		First:  binary.LittleEndian.Uint64(b[24:]),
		Ops:    binary.LittleEndian.Uint32(b[32:]),
		Time:   int64(binary.LittleEndian.Uint64(b[36:])),
		Body:   b[headerLen:end:end],
	}
	if r.First > math.MaxUint64-uint64(r.Ops) {
		return Record{}, nil, fmt.Errorf("%w: sequence number %d with %d entries", ErrBadRecord, r.First, r.Ops)
	}
	return r, b[end:], nil
}
