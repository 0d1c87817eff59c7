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

// fill reads len(p) bytes at off into p and returns nil if ok accepts them; ok may be called more
// than once. The error names the file. It is a *CorruptError if any copy was read and rejected.
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

// corrupt returns the error for a malformed block.
func (f *file) corrupt(h handle, k kind) error {
	return &CorruptError{File: f.name, Offset: h.off, Length: int64(h.stored) + trailerBytes, Reason: "malformed " + k.String()}
}

// largeBlock rejects a block larger than its reader accepts.
type largeBlock struct{ raw int }

func (e *largeBlock) Error() string {
	return fmt.Sprintf("block of %d bytes, decompressed, exceeds its reader's limit", e.raw)
}

// read reads one block and returns its raw bytes, in memory that is not used for anything else.
// Unless rawMax is 0, it rejects a compressed block with a raw length above rawMax with a *largeBlock.
func (f *file) read(h handle, k kind, rawMax int) ([]byte, error) {
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
	if raw := rawBytes(frame, h); rawMax > 0 && h.compressed && raw > rawMax && raw <= blockRawMax {
		return nil, &largeBlock{raw}
	}
	return f.open(frame, h, k)
}

// open returns the raw bytes of a frame with a valid checksum.
func (f *file) open(frame []byte, h handle, k kind) ([]byte, error) {
	raw, bad := openFrame(frame, h, k, f.dict)
	if bad != nil {
		bad.File = f.name
		return nil, bad
	}
	return raw, nil
}

// readRun reads contiguous blocks with one read and returns their frames in shared memory.
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

// runLen returns how many handles at the start of hs are contiguous and have at most limit bytes
// together; at least 1.
func runLen(hs []handle, limit int64) int {
	n := 1
	for n < len(hs) && hs[n].off == hs[n-1].end() && hs[n].end()-hs[0].off <= limit {
		n++
	}
	return n
}
