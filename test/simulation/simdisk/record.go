package simdisk

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

// recordKind is the kind of a record of a RaftLog.
type recordKind uint32

const (
	recordEntries recordKind = iota + 1
	recordDeletion
	recordValue
)

const (
	recordHeader  = 16
	recordPadding = 0xa5
	entryFixed    = 4 + 8 + 8 + 1 + 8 + 1 + 4 // of an entry, before the data
)

// appendRecord appends a record with that payload.
func appendRecord(b []byte, kind recordKind, payload []byte) []byte {
	var h [recordHeader]byte
	binary.LittleEndian.PutUint32(h[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[8:], uint32(kind))
	binary.LittleEndian.PutUint32(h[12:], crc.Sum(payload))
	binary.LittleEndian.PutUint32(h[:], crc.Sum(h[4:]))
	b = append(append(b, h[:]...), payload...)
	for len(b)%recordHeader != 0 {
		b = append(b, recordPadding)
	}
	return b
}

// recordBytes returns the size of a record.
func recordBytes(payload int) int {
	return (recordHeader + payload + recordHeader - 1) / recordHeader * recordHeader
}

// parseRecord returns the first record of b and its size. If it is not valid, it returns the number of
// bytes that it should have, as far as that is known.
func parseRecord(b []byte) (kind recordKind, payload []byte, size int, ok bool) {
	if len(b) < recordHeader || binary.LittleEndian.Uint32(b) != crc.Sum(b[4:recordHeader], nil) {
		return 0, nil, recordHeader, false
	}
	length := int(binary.LittleEndian.Uint32(b[4:]))
	size = recordBytes(length)
	if len(b) < size {
		return 0, nil, size, false
	}
	payload = b[recordHeader : recordHeader+length]
	kind = recordKind(binary.LittleEndian.Uint32(b[8:]))
	return kind, payload, size, binary.LittleEndian.Uint32(b[12:]) == crc.Sum(payload)
}

// torn reports whether a power loss explains why the record of that size at off is not valid: its end
// is missing, or a sector of it reads as zeros.
func torn(file []byte, off, size int) bool {
	if off+size > len(file) {
		return true
	}
	for from := off; from < off+size; {
		to := min(from/vfs.SectorBytes*vfs.SectorBytes+vfs.SectorBytes, off+size)
		if !slices.ContainsFunc(file[from:to], func(b byte) bool { return b != 0 }) {
			return true
		}
		from = to
	}
	return false
}

// holdsRecord reports whether a valid record begins anywhere in a part of the file.
func holdsRecord(b []byte) bool {
	for off := 0; off+recordHeader <= len(b); off += recordHeader {
		if _, _, _, ok := parseRecord(b[off:]); ok {
			return true
		}
	}
	return false
}

// appendEntry appends an entry to the payload of a record.
func appendEntry(b []byte, l *raft.Log) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(entryFixed-4+len(l.Data)+len(l.Extensions)))
	b = binary.LittleEndian.AppendUint64(b, l.Index)
	b = binary.LittleEndian.AppendUint64(b, l.Term)
	b = append(b, byte(l.Type))
	if l.AppendedAt.IsZero() {
		b = append(b, make([]byte, 9)...)
	} else {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(l.AppendedAt.UnixNano())), 1)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Data)))
	return append(append(b, l.Data...), l.Extensions...)
}

// cutEntry returns the first entry of a payload, its index, and what follows it.
func cutEntry(b []byte) (entry []byte, index uint64, rest []byte, err error) {
	if len(b) < entryFixed {
		return nil, 0, nil, fmt.Errorf("entry has %d bytes", len(b))
	}
	size := 4 + int(binary.LittleEndian.Uint32(b))
	data := int(binary.LittleEndian.Uint32(b[entryFixed-4:]))
	if size < entryFixed+data || size > len(b) {
		return nil, 0, nil, fmt.Errorf("entry has %d bytes of %d, with %d of data", size, len(b), data)
	}
	return b[:size:size], binary.LittleEndian.Uint64(b[4:]), b[size:], nil
}

// decodeEntry sets l to an entry that cutEntry has returned.
func decodeEntry(b []byte, l *raft.Log) {
	data := int(binary.LittleEndian.Uint32(b[entryFixed-4:]))
	*l = raft.Log{
		Index: binary.LittleEndian.Uint64(b[4:]),
		Term:  binary.LittleEndian.Uint64(b[12:]),
		Type:  raft.LogType(b[20]),
		Data:  cloneOrNil(b[entryFixed : entryFixed+data]), Extensions: cloneOrNil(b[entryFixed+data:]),
	}
	if b[29] != 0 {
		l.AppendedAt = time.Unix(0, int64(binary.LittleEndian.Uint64(b[21:])))
	}
}

func cloneOrNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return slices.Clone(b)
}
