package local

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/steledb/stele/internal/crc"
)

// The package comment specifies the layout of extent files.
const (
	extentMagic       = "STELEEXT"
	extentFooterMagic = "STELEEND"
	extentVersion     = 1
	pageBytes         = 4096
	extentFooterBytes = 64
	flagLastExtent    = 1
)

// extentMeta is the metadata in an extent file.
type extentMeta struct {
	blob     ID
	index    int
	offset   int64 // of the extent within the blob
	length   int64 // payload bytes
	last     bool
	tableCRC uint32
}

func chunkCount(length int64) int64 { return (length + ChunkBytes - 1) / ChunkBytes }

// extentFileBytes returns the size of the file of an extent of length bytes.
func extentFileBytes(length int64) int64 {
	return pageBytes + length + 4*chunkCount(length) + extentFooterBytes
}

// payloadBytes is the inverse of extentFileBytes. It returns false if no extent has a file of that
// size.
func payloadBytes(fileBytes int64) (int64, bool) {
	rest := fileBytes - pageBytes - extentFooterBytes
	if rest < 0 {
		return 0, false
	}
	chunks := (rest + ChunkBytes + 3) / (ChunkBytes + 4)
	length := rest - 4*chunks
	return length, length >= 0 && chunkCount(length) == chunks
}

// encodeHeader fills a page with the extent's header.
func (m extentMeta) encodeHeader(page []byte) {
	clear(page[:pageBytes])
	copy(page, extentMagic)
	le := binary.LittleEndian
	le.PutUint32(page[8:], extentVersion)
	le.PutUint32(page[12:], ChunkBytes)
	copy(page[16:], m.blob[:])
	le.PutUint32(page[32:], uint32(m.index))
	le.PutUint64(page[40:], uint64(m.offset))
	le.PutUint32(page[pageBytes-4:], crc.Sum(page[:pageBytes-4]))
}

// appendTail appends what follows the payload: chunk table and footer.
func (m extentMeta) appendTail(b []byte, chunks []uint32) []byte {
	le := binary.LittleEndian
	start := len(b)
	for _, c := range chunks {
		b = le.AppendUint32(b, c)
	}
	m.tableCRC = crc.Sum(b[start:])
	start = len(b)
	b = append(b, m.blob[:]...)
	b = le.AppendUint32(b, uint32(m.index))
	var flags uint32
	if m.last {
		flags = flagLastExtent
	}
	b = le.AppendUint32(b, flags)
	b = le.AppendUint64(b, uint64(m.offset))
	b = le.AppendUint64(b, uint64(m.length))
	b = le.AppendUint32(b, m.tableCRC)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, extentVersion)
	b = append(b, extentFooterMagic...)
	return le.AppendUint32(b, crc.Sum(b[start:]))
}

// tableCRC returns the checksum of a chunk table, as stored in handles.
func tableCRC(chunks []uint32) uint32 {
	var c uint32
	var b [4]byte
	for _, chunk := range chunks {
		binary.LittleEndian.PutUint32(b[:], chunk)
		c = crc.Update(c, b[:])
	}
	return c
}

// decodeHeader decodes and checks a header page. Errors are a *CorruptError of the given file.
func decodeHeader(page []byte, file string) (extentMeta, error) {
	le := binary.LittleEndian
	if string(page[:8]) != extentMagic {
		return extentMeta{}, &CorruptError{File: file, Reason: "not an extent: wrong magic"}
	}
	got, want := crc.Sum(page[:pageBytes-4]), le.Uint32(page[pageBytes-4:])
	if got != want {
		return extentMeta{}, &CorruptError{File: file, Got: got, Want: want}
	}
	if v, c := le.Uint32(page[8:]), le.Uint32(page[12:]); v != extentVersion || c != ChunkBytes {
		return extentMeta{}, &CorruptError{File: file, Reason: fmt.Sprintf("unknown extent version %d with chunks of %d bytes", v, c)}
	}
	return extentMeta{
		blob:   ID(page[16:32]),
		index:  int(le.Uint32(page[32:])),
		offset: int64(le.Uint64(page[40:])),
	}, nil
}

// decodeTail decodes and checks table and footer, which start at offset at of the file.
func decodeTail(tail []byte, file string, at int64) (extentMeta, []uint32, error) {
	le := binary.LittleEndian
	table, foot := tail[:len(tail)-extentFooterBytes], tail[len(tail)-extentFooterBytes:]
	footAt := at + int64(len(table))
	got, want := crc.Sum(foot[:extentFooterBytes-4]), le.Uint32(foot[extentFooterBytes-4:])
	if got != want {
		return extentMeta{}, nil, &CorruptError{File: file, Offset: footAt, Got: got, Want: want}
	}
	if string(foot[52:60]) != extentFooterMagic || le.Uint32(foot[48:]) != extentVersion {
		return extentMeta{}, nil, &CorruptError{File: file, Offset: footAt, Reason: "unknown extent footer version or wrong magic"}
	}
	m := extentMeta{
		blob:     ID(foot[:16]),
		index:    int(le.Uint32(foot[16:])),
		last:     le.Uint32(foot[20:])&flagLastExtent != 0,
		offset:   int64(le.Uint64(foot[24:])),
		length:   int64(le.Uint64(foot[32:])),
		tableCRC: le.Uint32(foot[40:]),
	}
	if m.length < 0 || 4*chunkCount(m.length) != int64(len(table)) || pageBytes+m.length != at {
		return extentMeta{}, nil, &CorruptError{File: file, Offset: footAt, Reason: fmt.Sprintf("footer has a length of %d bytes, which does not match the file size", m.length)}
	}
	if got := crc.Sum(table); got != m.tableCRC {
		return extentMeta{}, nil, &CorruptError{File: file, Offset: at, Got: got, Want: m.tableCRC}
	}
	chunks := make([]uint32, len(table)/4)
	for i := range chunks {
		chunks[i] = le.Uint32(table[4*i:])
	}
	return m, chunks, nil
}

// extentName returns the file name of a sealed extent. For the last extent of a blob, of is the
// number of extents; for the others it is 0, because their number is not known when they are
// sealed.
func extentName(x ExtentID, of int) string {
	if of == 0 {
		return x.String()
	}
	return fmt.Sprintf("%sof%d", x, of)
}

// parseExtentName parses the result of extentName, and nothing else. The first version put the
// number into every name, so an extent that is not the last may have it.
func parseExtentName(name string) (x ExtentID, of int, ok bool) {
	hex, rest, _ := strings.Cut(name, ".")
	i, n, numbered := strings.Cut(rest, "of")
	id, err := ParseID(hex)
	index, errIndex := strconv.Atoi(i)
	if numbered {
		var errOf error
		if of, errOf = strconv.Atoi(n); errOf != nil || of <= index {
			return ExtentID{}, 0, false
		}
	}
	x = ExtentID{Blob: id, Index: index}
	ok = err == nil && errIndex == nil && index >= 0 && index < ExtentsMax && name == extentName(x, of)
	return x, of, ok
}

// isLast reports whether a file with that name has the blob's last extent.
func (x ExtentID) isLast(of int) bool { return x.Index == of-1 }
