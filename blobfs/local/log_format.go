package local

import (
	"encoding/binary"
	"fmt"

	"github.com/steledb/stele/internal/crc"
)

// The package comment specifies the layout of log files.
const (
	logMagic       = "STELELOG"
	logVersion     = 1
	logHeaderBytes = 512
	// logHeaderCopy is the offset of the second copy of the header.
	logHeaderCopy = 2048

	frameHeaderBytes = 40
	// frameBytesMax bounds the buffers of writers and readers. Writing and syncing 1 MiB at a time
	// reaches the disk's throughput.
	frameBytesMax = 1 << 20

	logSuffix = ".log"
)

// LogPayloadMax is the maximum length of a payload for Append, in bytes.
const LogPayloadMax = 512 << 20

// logFileState is the use of a log file. Persisted: append only.
type logFileState uint32

const (
	logFileSpare logFileState = 1
	logFileUsed  logFileState = 2
	// logFileReplica is a replica of an extent of a log on several nodes.
	logFileReplica logFileState = 3
)

// logServerBytesMax is the maximum length of the name of the server that owns a replica's log.
const logServerBytesMax = 64

// Flags of a replica. Persisted: append only.
const (
	logFlagStarted = 1
	logFlagSealed  = 2
)

// logHeader is the header of a log file. In a spare, all fields but state, generation and bytes are
// zero.
type logHeader struct {
	state      logFileState
	generation uint64 // counts the headers written to this file
	bytes      int64  // size of the file
	log        ID
	seq        uint64 // number of the extent in its log, from 1; not dense
	prevSeq    uint64 // seq of the extent before it, 0 if none
	prevLen    int64  // bytes of frames in that one; frames beyond are ignored
	start      int64  // position in the log of the first frame
	salt       uint64 // random; every frame repeats it
	live       uint64 // extents with a lower seq are released; all are if ^0

	// Used in replicas only, which have no prevSeq, prevLen and live.
	epoch, fence    uint64
	length          int64 // once sealed
	started, sealed bool
	server          string // that owns the log
	quarantineRound uint64 // of the sweep that quarantined it
	quarantined     int64  // when, in seconds since 1970; 0 if it is not
}

// encode fills a page with two copies of the header.
func (h logHeader) encode(page []byte) {
	clear(page[:pageBytes])
	le := binary.LittleEndian
	copy(page, logMagic)
	le.PutUint32(page[8:], logVersion)
	le.PutUint32(page[12:], uint32(h.state))
	le.PutUint64(page[16:], h.generation)
	le.PutUint64(page[24:], uint64(h.bytes))
	copy(page[32:], h.log[:])
	le.PutUint64(page[48:], h.seq)
	le.PutUint64(page[56:], h.prevSeq)
	le.PutUint64(page[64:], uint64(h.prevLen))
	le.PutUint64(page[72:], uint64(h.start))
	le.PutUint64(page[80:], h.salt)
	le.PutUint64(page[88:], h.live)
	if h.state == logFileReplica {
		h.encodeReplica(page)
	}
	le.PutUint32(page[logHeaderBytes-4:], crc.Sum(page[:logHeaderBytes-4]))
	copy(page[logHeaderCopy:], page[:logHeaderBytes])
}

// decodeLogHeader returns the valid copy with the higher generation. If none is valid, the error is
// a *CorruptError of the given file.
func decodeLogHeader(page []byte, file string) (logHeader, error) {
	a, errA := decodeLogHeaderCopy(page, file, 0)
	b, errB := decodeLogHeaderCopy(page, file, logHeaderCopy)
	if errA != nil && errB != nil {
		return logHeader{}, errA
	}
	if errA != nil || (errB == nil && b.generation > a.generation) {
		return b, nil
	}
	return a, nil
}

func decodeLogHeaderCopy(page []byte, file string, at int64) (logHeader, error) {
	b := page[at : at+logHeaderBytes]
	le := binary.LittleEndian
	if string(b[:8]) != logMagic {
		return logHeader{}, &CorruptError{File: file, Offset: at, Reason: "not a log file: wrong magic"}
	}
	if got, want := crc.Sum(b[:logHeaderBytes-4]), le.Uint32(b[logHeaderBytes-4:]); got != want {
		return logHeader{}, &CorruptError{File: file, Offset: at, Got: got, Want: want}
	}
	if v := le.Uint32(b[8:]); v != logVersion {
		return logHeader{}, &CorruptError{File: file, Offset: at, Reason: fmt.Sprintf("unknown log file version %d", v)}
	}
	h := logHeader{
		state:      logFileState(le.Uint32(b[12:])),
		generation: le.Uint64(b[16:]),
		bytes:      int64(le.Uint64(b[24:])),
		log:        ID(b[32:48]),
		seq:        le.Uint64(b[48:]),
		prevSeq:    le.Uint64(b[56:]),
		prevLen:    int64(le.Uint64(b[64:])),
		start:      int64(le.Uint64(b[72:])),
		salt:       le.Uint64(b[80:]),
		live:       le.Uint64(b[88:]),
	}
	if h.state == logFileReplica {
		h.decodeReplica(b)
	}
	capacity := h.bytes - 2*pageBytes
	spare := h.state == logFileSpare
	used := h.state == logFileUsed && h.seq > h.prevSeq && h.start >= 0 && h.prevLen >= 0 && h.prevLen <= h.start
	if capacity < pageBytes || capacity%pageBytes != 0 || (!spare && !used && !h.validReplica()) {
		return logHeader{}, &CorruptError{File: file, Offset: at, Reason: "invalid log file header"}
	}
	return h, nil
}

func (h *logHeader) encodeReplica(page []byte) {
	le := binary.LittleEndian
	le.PutUint64(page[96:], h.epoch)
	le.PutUint64(page[104:], h.fence)
	le.PutUint64(page[112:], uint64(h.length))
	var flags uint32
	if h.started {
		flags |= logFlagStarted
	}
	if h.sealed {
		flags |= logFlagSealed
	}
	le.PutUint32(page[120:], flags)
	page[124] = byte(len(h.server))
	copy(page[128:], h.server)
	le.PutUint64(page[192:], h.quarantineRound)
	le.PutUint64(page[200:], uint64(h.quarantined))
}

func (h *logHeader) decodeReplica(b []byte) {
	le := binary.LittleEndian
	h.epoch, h.fence = le.Uint64(b[96:]), le.Uint64(b[104:])
	h.length = int64(le.Uint64(b[112:]))
	flags := le.Uint32(b[120:])
	h.started, h.sealed = flags&logFlagStarted != 0, flags&logFlagSealed != 0
	h.server = string(b[128:][:min(int(b[124]), logServerBytesMax)])
	h.quarantineRound, h.quarantined = le.Uint64(b[192:]), int64(le.Uint64(b[200:]))
}

func (h *logHeader) validReplica() bool {
	return h.state == logFileReplica && h.seq > 0 && h.epoch > 0 && h.start >= 0 &&
		h.length >= 0 && h.length <= h.bytes-pageBytes && h.length%pageBytes == 0
}

// frameKind is the part of a payload that a frame has. Persisted: append only.
type frameKind uint8

const (
	frameFull   frameKind = 1 // a whole payload
	frameFirst  frameKind = 2 // the beginning of one
	frameMiddle frameKind = 3
	frameLast   frameKind = 4
	frameSeal   frameKind = 5 // no payload: the log ends here
)

// frame is a decoded frame. Its payload aliases the bytes that it was decoded from.
type frame struct {
	kind    frameKind
	payload []byte
	total   int64 // bytes of the whole payload
	bytes   int64 // of the frame
	ahead   int64 // bytes before it that were not acknowledged when it was sent
}

// frameBytes returns the size of a frame with n bytes of payload: whole pages.
func frameBytes(n int) int64 {
	return (frameHeaderBytes + int64(n) + pageBytes - 1) &^ (pageBytes - 1)
}

// encodeFrame encodes a frame into b, which must have the frame's size.
func encodeFrame(b []byte, kind frameKind, payload []byte, total int64, salt uint64, pos int64) {
	encodeFrameAhead(b, kind, payload, total, salt, pos, 0)
}

// encodeFrameAhead is encodeFrame with ahead, the number of bytes before the frame that may not be
// durable yet.
func encodeFrameAhead(b []byte, kind frameKind, payload []byte, total int64, salt uint64, pos, ahead int64) {
	le := binary.LittleEndian
	clear(b[:frameHeaderBytes])
	le.PutUint32(b[12:], uint32(ahead/pageBytes))
	b[4] = byte(kind)
	le.PutUint32(b[8:], uint32(len(payload)))
	le.PutUint64(b[16:], uint64(pos))
	le.PutUint64(b[24:], salt)
	le.PutUint64(b[32:], uint64(total))
	n := copy(b[frameHeaderBytes:], payload)
	clear(b[frameHeaderBytes+n:])
	le.PutUint32(b, crc.Sum(b[4:]))
}

// peekFrame returns the size of the frame at the start of b, which must have at least a frame
// header. It returns false if that is not a frame with the given salt and position.
func peekFrame(b []byte, salt uint64, pos int64) (int64, bool) {
	le := binary.LittleEndian
	size := frameBytes(int(le.Uint32(b[8:])))
	return size, le.Uint64(b[16:]) == uint64(pos) && le.Uint64(b[24:]) == salt && size <= frameBytesMax
}

// decodeFrame decodes the frame in b, which peekFrame has accepted. got and want are checksums. The
// frame is valid if they are equal and ok is true.
func decodeFrame(b []byte) (f frame, got, want uint32, ok bool) {
	le := binary.LittleEndian
	got, want = crc.Sum(b[4:]), le.Uint32(b)
	n := int64(le.Uint32(b[8:]))
	f = frame{
		kind:    frameKind(b[4]),
		payload: b[frameHeaderBytes : frameHeaderBytes+n],
		total:   int64(le.Uint64(b[32:])),
		bytes:   int64(len(b)),
		ahead:   int64(le.Uint32(b[12:])) * pageBytes,
	}
	ok = frameFull <= f.kind && f.kind <= frameSeal && n <= f.total && f.total <= LogPayloadMax
	return f, got, want, ok
}
