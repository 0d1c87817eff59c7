package sstable

import (
	"encoding/binary"

	"github.com/steledb/stele/internal/crc"
)

// Versions of the format. A file has the lowest that its reader must know.
const (
	formatVersion = 1
	// dictVersion has data blocks compressed in two passes, and may have
	// the dictionary that they share.
	dictVersion = 2
)

// magic opens the file and closes it.
const magic = "SteleSST"

const (
	// headerBytes open the file: magic, version u32, checksum u32.
	headerBytes = 16
	// footerBytes close the file: directory offset u64, file length u64,
	// directory stored length u32, zero u32, version u32, checksum u32,
	// magic. Every version keeps the last sixteen where they are.
	footerBytes = 40
)

// Names in the directory block.
const (
	dirFilter     = "filter"     // the filter index, if there is a filter
	dirIndex      = "index"      // the index block, if there is only one
	dirIndexRoot  = "index-root" // else the block above them
	dirProperties = "properties"
	dirDictionary = "dictionary" // if data blocks share one
)

func readable(version uint32) bool { return version == formatVersion || version == dictVersion }

func appendHeader(p []byte, version uint32) []byte {
	start := len(p)
	p = append(p, magic...)
	p = binary.LittleEndian.AppendUint32(p, version)
	return binary.LittleEndian.AppendUint32(p, crc.Sum(p[start:]))
}

// checkHeader verifies the first headerBytes of a file. Only Verify calls
// it: Open learns all it needs from the footer.
func checkHeader(p []byte) error {
	want := binary.LittleEndian.Uint32(p[12:])
	if got := crc.Sum(p[:12]); got != want {
		return &CorruptError{Length: headerBytes, Reason: "header checksum differs", Got: got, Want: want}
	}
	if string(p[:8]) != magic {
		return &CorruptError{Length: headerBytes, Reason: "header has another magic"}
	}
	if v := binary.LittleEndian.Uint32(p[8:]); !readable(v) {
		return &VersionError{Version: v}
	}
	return nil
}

func appendFooter(p []byte, directory handle, size int64, version uint32) []byte {
	start := len(p)
	p = binary.LittleEndian.AppendUint64(p, uint64(directory.off))
	p = binary.LittleEndian.AppendUint64(p, uint64(size))
	p = binary.LittleEndian.AppendUint32(p, uint32(directory.stored))
	p = binary.LittleEndian.AppendUint32(p, 0)
	p = binary.LittleEndian.AppendUint32(p, version)
	p = binary.LittleEndian.AppendUint32(p, crc.Sum(p[start:]))
	return append(p, magic...)
}

// decodeFooter reads the last footerBytes of a file of size bytes. It
// returns a *CorruptError or a *VersionError.
func decodeFooter(p []byte, size int64) (directory handle, err error) {
	bad := func(reason string) (handle, error) {
		return handle{}, &CorruptError{Offset: size - footerBytes, Length: footerBytes, Reason: reason}
	}
	if string(p[32:]) != magic {
		return bad("no footer")
	}
	want := binary.LittleEndian.Uint32(p[28:])
	if got := crc.Sum(p[:28]); got != want {
		return handle{}, &CorruptError{Offset: size - footerBytes, Length: footerBytes,
			Reason: "footer checksum differs", Got: got, Want: want}
	}
	if v := binary.LittleEndian.Uint32(p[24:]); !readable(v) {
		return handle{}, &VersionError{Version: v}
	}
	if n := binary.LittleEndian.Uint64(p[8:]); n != uint64(size) {
		return bad("file of another length than its footer says")
	}
	off, stored := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint32(p[16:])
	limit := uint64(size - footerBytes)
	if off < headerBytes || off > limit || uint64(stored)+trailerBytes != limit-off ||
		binary.LittleEndian.Uint32(p[20:]) != 0 {
		return bad("malformed footer")
	}
	return handle{off: int64(off), stored: int(stored)}, nil
}
