package local

import "fmt"

// assembler makes payloads of frames.
type assembler struct {
	run     []byte // payload in parts, so far
	running bool   // a first part was read and no last one yet
	begun   bool   // a whole payload or a first part was read
}

const partMissing = "part of a payload without those before it"

// add takes one frame and tells whether a payload is whole with it; not ok if it does not
// go with those before. A payload in parts that was given up, as the disk was full half
// way, is followed by another's beginning.
func (a *assembler) add(f frame) (payload []byte, whole, ok bool) {
	switch f.kind {
	case frameFull:
		a.running, a.begun = false, true
		return f.payload, true, true
	case frameFirst:
		a.running, a.begun = true, true
		a.run = append(a.run[:0], f.payload...)
		return nil, false, true
	}
	if !a.running && !a.begun {
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

// LogFrameBytesMax is the longest frame, in bytes, and LogPageBytes what each is a multiple of.
const (
	LogFrameBytesMax = frameBytesMax
	LogPageBytes     = pageBytes
)

// LogFrameParts returns into how many frames of up to max bytes a payload of n bytes goes, and how
// many bytes of it each but the last takes.
func LogFrameParts(n int, max int64) (parts, each int) {
	each = int(max) - frameHeaderBytes
	if n <= each {
		return 1, each
	}
	return (n + each - 1) / each, each
}

// LogFrameBytes returns the length of the frame of n bytes of payload.
func LogFrameBytes(n int) int64 { return frameBytes(n) }

// EncodeLogFrame fills b, of LogFrameBytes, with the i-th of the frames of a payload: of parts, with
// each bytes in all but the last.
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

// ResaltLogFrame makes a good frame one of another extent.
func ResaltLogFrame(b []byte, salt uint64, pos, ahead int64) {
	f, _, _, _ := decodeFrame(b)
	kind, total, n := f.kind, f.total, len(f.payload)
	// The payload stays where it is.
	encodeFrameAhead(b, kind, b[frameHeaderBytes:][:n], total, salt, pos, ahead)
}

// LogDecoder takes the frames of a log apart, extent by extent, and returns its payloads.
type LogDecoder struct {
	// Name is of the extent, for errors.
	Name string
	salt uint64
	pos  int64
	at   int64 // in the extent
	from int64 // where the first frame of the payload under way is
	a    assembler
}

// Start goes on at a position, with the frame that is at that offset of an extent.
func (d *LogDecoder) Start(name string, salt uint64, pos, offset int64) {
	d.Name, d.salt, d.pos, d.at = name, salt, pos, offset
}

// Next takes a frame off b. It returns the frame's size, and a payload if it is whole with
// that, valid until the next call or until b changes. A size of 0 means that the frame goes on behind b.
// What is no frame of the extent is a *CorruptError.
func (d *LogDecoder) Next(b []byte) (size int64, payload []byte, whole bool, err error) {
	if len(b) < frameHeaderBytes {
		return 0, nil, false, nil
	}
	size, ok := peekFrame(b, d.salt, d.pos)
	if !ok {
		return 0, nil, false, &CorruptError{File: d.Name, Offset: d.at, Reason: fmt.Sprintf("no frame of position %d", d.pos)}
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

// Position returns the position after the frames so far.
func (d *LogDecoder) Position() int64 { return d.pos }

// Began returns the position of the first frame of the payload that came last, and whether its
// last frame is still to come.
func (d *LogDecoder) Began() (pos int64, unfinished bool) { return d.from, d.a.running }
