package local

import "fmt"

// assembler joins the frames of a payload.
type assembler struct {
	run     []byte // the payload so far, if it has several frames
	running bool   // a first part was added, and its last part was not
	started bool   // a whole payload or a first part was added
}

const partMissing = "part of a payload without the preceding part"

// add adds a frame. It returns the payload and whole if the frame completes it, and ok false if the
// frame does not follow the previous ones. A new payload may start before the previous one is
// complete: its writer gave up when the disk was full.
func (a *assembler) add(f frame) (payload []byte, whole, ok bool) {
	switch f.kind {
	case frameFull:
		a.running, a.started = false, true
		return f.payload, true, true
	case frameFirst:
		a.running, a.started = true, true
		a.run = append(a.run[:0], f.payload...)
		return nil, false, true
	}
	if !a.running && !a.started {
		return nil, false, true // the payload began in an extent that was released
	}
	a.run = append(a.run, f.payload...)
	done := f.kind == frameLast
	if !a.running || int64(len(a.run)) > f.total || done != (int64(len(a.run)) == f.total) {
		return nil, false, false
	}
	if done {
		a.running = false
	}
	return a.run, done, true
}

// LogFrameBytesMax is the maximum size of a frame, in bytes. Frame sizes are multiples of
// LogPageBytes.
const (
	LogFrameBytesMax = frameBytesMax
	LogPageBytes     = pageBytes
)

// LogFrameParts returns the number of frames of up to max bytes for a payload of n bytes, and how
// many bytes of the payload each frame but the last has.
func LogFrameParts(n int, max int64) (parts, each int) {
	each = int(max) - frameHeaderBytes
	if n <= each {
		return 1, each
	}
	return (n + each - 1) / each, each
}

// LogFrameBytes returns the size of a frame with n bytes of payload.
func LogFrameBytes(n int) int64 { return frameBytes(n) }

// EncodeLogFrame encodes frame i of a payload split into parts frames into b, which must have the
// size LogFrameBytes. Each frame but the last has each bytes of the payload.
func EncodeLogFrame(b, payload []byte, i, parts, each int, salt uint64, pos, ahead int64) {
	kind := frameMiddle
	switch {
	case parts == 1:
		kind = frameFull
	case i == 0:
		kind = frameFirst
	case i == parts-1:
		kind = frameLast
	}
	part := payload[i*each:]
	encodeFrameAhead(b, kind, part[:min(each, len(part))], int64(len(payload)), salt, pos, ahead)
}

// ResaltLogFrame rewrites the header of a valid frame for another extent or position.
func ResaltLogFrame(b []byte, salt uint64, pos, ahead int64) {
	f, _, _, _ := decodeFrame(b)
	kind, total, n := f.kind, f.total, len(f.payload)
	// The payload is already in place.
	encodeFrameAhead(b, kind, b[frameHeaderBytes:][:n], total, salt, pos, ahead)
}

// LogDecoder decodes the frames of a log, extent by extent, and returns its payloads.
type LogDecoder struct {
	// Name is the name of the extent, for errors.
	Name string
	salt uint64
	pos  int64
	at   int64 // offset in the extent
	from int64 // position of the first frame of the current payload
	a    assembler
}

// Start continues at position pos with the frame at an offset of an extent.
func (d *LogDecoder) Start(name string, salt uint64, pos, offset int64) {
	d.Name, d.salt, d.pos, d.at = name, salt, pos, offset
}

// Next decodes the frame at the start of b. It returns the frame's size and, if the frame completes
// a payload, the payload, valid until the next call or until b changes. A size of 0 means that b
// does not have the whole frame. An invalid frame is a *CorruptError.
func (d *LogDecoder) Next(b []byte) (size int64, payload []byte, whole bool, err error) {
	if len(b) < frameHeaderBytes {
		return 0, nil, false, nil
	}
	size, ok := peekFrame(b, d.salt, d.pos)
	if !ok {
		return 0, nil, false, &CorruptError{File: d.Name, Offset: d.at, Reason: fmt.Sprintf("no frame with position %d", d.pos)}
	}
	if size > int64(len(b)) {
		return 0, nil, false, nil
	}
	f, got, want, ok := decodeFrame(b[:size])
	if got != want || !ok {
		return 0, nil, false, &CorruptError{File: d.Name, Offset: d.at, Got: got, Want: want}
	}
	payload, whole, ok = d.a.add(f)
	if !ok {
		return 0, nil, false, &CorruptError{File: d.Name, Offset: d.at, Reason: partMissing}
	}
	if f.kind == frameFull || f.kind == frameFirst {
		d.from = d.pos
	}
	d.pos += size
	d.at += size
	return size, payload, whole, nil
}

// Position returns the position after the last decoded frame.
func (d *LogDecoder) Position() int64 { return d.pos }

// Began returns the position of the first frame of the current payload, and whether its last frame
// has not been decoded yet.
func (d *LogDecoder) Began() (pos int64, unfinished bool) { return d.from, d.a.running }
