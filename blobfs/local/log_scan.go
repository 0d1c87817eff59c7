package local

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/vfs"
)

// frameScanner reads the frames of one log extent in order.
type frameScanner struct {
	file   vfs.File
	path   string
	header logHeader
	off    int64 // in the file, of the next frame
	limit  int64 // in the file; no frame goes beyond

	// buf is a window of the file. It is twice the size of the largest frame, so that consecutive
	// reads overlap little.
	buf   []byte
	bufAt int64
}

func newFrameScanner(file vfs.File, f *logFile, limit int64, buf []byte) frameScanner {
	return frameScanner{file: file, path: f.path(), header: f.header, off: pageBytes, limit: limit, buf: buf[:0]}
}

// newScanBuffer returns a window for extents of the given size.
func newScanBuffer(extent int64) []byte { return make([]byte, 0, min(2*frameBytesMax, extent)) }

// position returns the log position of the next frame.
func (s *frameScanner) position() int64 { return s.header.start + s.off - pageBytes }

// view returns n bytes of the file at off, valid until the next call.
func (s *frameScanner) view(off, n int64) ([]byte, error) {
	if off < s.bufAt || off+n > s.bufAt+int64(len(s.buf)) {
		s.buf = s.buf[:min(int64(cap(s.buf)), s.limit-off)]
		s.bufAt = off
		got, err := readFull(s.file, s.buf, off)
		s.buf = s.buf[:got]
		// In an encrypted file, the bytes before a page that fails authentication are good.
		var damage *vfs.DamageError
		if errors.As(err, &damage) && int64(got) < n {
			err = &CorruptError{File: s.path, Offset: off, Reason: fmt.Sprintf("at %d %s", damage.Offset, damage.Reason)}
			s.buf = s.buf[:0]
			return nil, err
		}
		if err != nil && damage == nil {
			s.buf = s.buf[:0]
			return nil, readError(err, s.path, off)
		}
	}
	return s.buf[off-s.bufAt:][:n], nil
}

// at decodes the frame at off. An invalid frame is a *CorruptError.
func (s *frameScanner) at(off int64) (frame, error) {
	pos := s.header.start + off - pageBytes
	if off+pageBytes > s.limit {
		return frame{}, &CorruptError{File: s.path, Offset: off, Reason: "no space for a frame"}
	}
	head, err := s.view(off, frameHeaderBytes)
	if err != nil {
		return frame{}, err
	}
	size, ok := peekFrame(head, s.header.salt, pos)
	if !ok || off+size > s.limit {
		return frame{}, &CorruptError{File: s.path, Offset: off, Reason: fmt.Sprintf("no frame with position %d", pos)}
	}
	b, err := s.view(off, size)
	if err != nil {
		return frame{}, err
	}
	f, got, want, ok := decodeFrame(b)
	if got != want {
		return frame{}, &CorruptError{File: s.path, Offset: off, Got: got, Want: want}
	}
	if !ok {
		return frame{}, &CorruptError{File: s.path, Offset: off, Reason: "invalid frame"}
	}
	return f, nil
}

// next decodes the next frame and advances past it.
func (s *frameScanner) next() (frame, error) {
	f, err := s.at(s.off)
	if err == nil {
		s.off += f.bytes
	}
	return f, err
}

// logTail is the end of a log's newest extent.
type logTail struct {
	end    int64 // in the file, after the last good frame
	last   int64 // in the file, of the last good frame; 0 if there is none
	sealed bool
	// damage is an invalid frame before a valid one, so not a torn tail.
	damage *CorruptError
}

// findTail scans the newest extent of a log to its end. The first invalid frame is the end if no
// valid one follows: appends go out one at a time, so a crash can tear only the last one.
func (s *frameScanner) findTail() (logTail, error) {
	var t logTail
	for {
		at := s.off
		f, err := s.next()
		var bad *CorruptError
		if errors.As(err, &bad) {
			t.end = at
			good, err := s.goodAfter(at)
			if good {
				t.damage = bad
			}
			return t, err
		}
		if err != nil {
			return t, err
		}
		if f.kind == frameSeal {
			t.end, t.sealed = s.off, true
			return t, nil
		}
		t.last = at
	}
}

// goodAfter reports whether there is a valid frame on any page after off.
func (s *frameScanner) goodAfter(off int64) (bool, error) {
	for off += pageBytes; off+pageBytes <= s.limit; off += pageBytes {
		_, err := s.at(off)
		if err == nil {
			return true, nil
		}
		var bad *CorruptError
		if !errors.As(err, &bad) {
			return false, err
		}
	}
	return false, nil
}
