package sstable

import (
	"encoding/binary"

	"github.com/steledb/stele/internal/crc"
)

// Versions of the format. A file has the lowest version that suffices to read it.
const (
	formatVersion = 1
	// dictVersion has data blocks with two-pass compression, and may have their dictionary.
	dictVersion = 2
	// PartialVersion has keys that mean nothing without what the caller adds to them: see Options.PartialKeys.
	PartialVersion = 3
	// VersionMax is the highest version that this program reads.
	VersionMax = PartialVersion
)

// magic is at the beginning and at the end of a file.
const magic = "SteleSST"

const (
	// headerBytes is the size of the header: magic, version u32, checksum u32.
	headerBytes = 16
	// footerBytes is the size of the footer: directory offset u64, file length u64, directory
	// stored length u32, zero u32, version u32, checksum u32, magic. The last sixteen bytes are the
	// same in every version.
	footerBytes = 40
)

// Names in the directory block.
const (
	dirFilter     = "filter"     // the filter index, if the file has a filter
	dirIndex      = "index"      // the only index block
	dirIndexRoot  = "index-root" // the root, if there are several index blocks
	dirProperties = "properties"
	dirDictionary = "dictionary" // the dictionary, if the file has one
)

func readable(version uint32) bool { return version >= formatVersion && version <= VersionMax }

func appendHeader(p []byte, version uint32) []byte {
	start := len(p)
	p = append(p, magic...)
	p = binary.LittleEndian.AppendUint32(p, version)
	return binary.LittleEndian.AppendUint32(p, crc.Sum(p[start:]))
}

// checkHeader verifies the first headerBytes of a file. Only Verify calls it: Open needs only the
// footer.
func checkHeader(p []byte) error {
	want := binary.LittleEndian.Uint32(p[12:])
	if got := crc.Sum(p[:12]); got != want {
		return &CorruptError{Length: headerBytes, Reason: "header checksum differs", Got: got, Want: want}
	}
	if string(p[:8]) != magic {
		return &CorruptError{Length: headerBytes, Reason: "wrong magic in the header"}
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

// decodeFooter decodes the last footerBytes of a file of size bytes. It returns a *CorruptError or
// a *VersionError.
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
		return bad("file length differs from the footer")
	}
	off, stored := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint32(p[16:])
	limit := uint64(size - footerBytes)
	if off < headerBytes || off > limit || uint64(stored)+trailerBytes != limit-off ||
		binary.LittleEndian.Uint32(p[20:]) != 0 {
		return bad("malformed footer")
	}
	return handle{off: int64(off), stored: int(stored)}, nil
}
