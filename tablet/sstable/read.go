package sstable

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/tablet/sstable/twopass"
)

// file reads blocks of one source.
type file struct {
	src  Source
	name string
	size int64
	dict *twopass.Dict // of two-pass compression; may be nil
}

// fill reads p from off and returns nil if ok, which may run more than once,
// accepts it. The error names the file and, if any copy was read and
// refused, is a *CorruptError.
func (f *file) fill(p []byte, off int64, ok func(p []byte) *CorruptError) error {
	var refused *CorruptError
	err := f.src.ReadChecked(p, off, func(p []byte) error {
		if refused = ok(p); refused != nil {
			return refused
		}
		return nil
	})
	if err == nil && refused == nil {
		return nil
	}
	if refused == nil {
		return fmt.Errorf("sstable %s: read %d bytes at offset %d: %w", f.name, len(p), off, err)
	}
	refused.File = f.name
	if !errors.Is(err, error(refused)) {
		refused.Err = err
	}
	return refused
}

// corrupt turns a malformed block into the error that users see.
func (f *file) corrupt(h handle, k kind) error {
	return &CorruptError{File: f.name, Offset: h.off, Length: int64(h.stored) + trailerBytes, Reason: "malformed " + k.String()}
}

// largeBlock refuses a block that is larger than its reader takes.
type largeBlock struct{ raw int }

func (e *largeBlock) Error() string {
	return fmt.Sprintf("block of %d bytes, decompressed, is more than its reader takes", e.raw)
}

// read reads one block and returns its raw bytes, in memory that is not
// used for anything else. Unless most is 0 it refuses one that would be larger, decompressed, with a *largeBlock.
func (f *file) read(h handle, k kind, most int) ([]byte, error) {
	n := h.stored + trailerBytes
	var frame []byte
	if h.compressed {
		p := getScratch(n)
		defer putScratch(p)
		frame = *p
	} else {
		frame = make([]byte, n)
	}
	err := f.fill(frame, h.off, func(p []byte) *CorruptError { return checkFrame(p, h.off) })
	if err != nil {
		return nil, err
	}
	if raw := rawBytes(frame, h); most > 0 && h.compressed && raw > most && raw <= blockRawMax {
		return nil, &largeBlock{raw}
	}
	return f.open(frame, h, k)
}

// open returns the raw bytes of a frame whose checksum is right.
func (f *file) open(frame []byte, h handle, k kind) ([]byte, error) {
	raw, bad := openFrame(frame, h, k, f.dict)
	if bad != nil {
		bad.File = f.name
		return nil, bad
	}
	return raw, nil
}

// readRun reads blocks that lie one after the other with one read and
// returns the memory that they share. The frame of each is a part of it.
func (f *file) readRun(run []handle) ([]byte, error) {
	start := run[0].off
	p := make([]byte, run[len(run)-1].end()-start)
	err := f.fill(p, start, func(p []byte) *CorruptError {
		for _, h := range run {
			if bad := checkFrame(p[h.off-start:h.end()-start], h.off); bad != nil {
				return bad
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// runLen returns how many of hs from the first on lie one after the other
// and are at most limit bytes together; at least 1.
func runLen(hs []handle, limit int64) int {
	n := 1
	for n < len(hs) && hs[n].off == hs[n-1].end() && hs[n].end()-hs[0].off <= limit {
		n++
	}
	return n
}
