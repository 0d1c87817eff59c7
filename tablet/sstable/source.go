package sstable

import (
	"fmt"
	"io"
	"os"
)

// Source is the bytes of one finished SSTable, wherever they are. It is safe
// for concurrent use. blobfs.Reader is one.
type Source interface {
	// ReadChecked fills p with the bytes from off on and returns nil only if
	// ok(p) did. When ok fails, the source may fill p again from another
	// replica and ask ok once more. An error means that no copy satisfied
	// ok, or that none could be read; it may name the rotten bytes. A read
	// beyond Size is an error.
	ReadChecked(p []byte, off int64, ok func(p []byte) error) error
	// Size returns the length in bytes. It never changes.
	Size() int64
}

// BytesSource is an SSTable in memory.
type BytesSource []byte

// ReadChecked copies from the slice. It returns ok's error, or
// io.ErrUnexpectedEOF if the slice ends before p is full.
func (s BytesSource) ReadChecked(p []byte, off int64, ok func([]byte) error) error {
	if off < 0 || off > int64(len(s)) || int64(len(p)) > int64(len(s))-off {
		return io.ErrUnexpectedEOF
	}
	copy(p, s[off:])
	return ok(p)
}

// Size returns the length of the slice.
func (s BytesSource) Size() int64 { return int64(len(s)) }

// FileSource is an SSTable in one file of the operating system, for tools
// that look at a file on its own.
type FileSource struct {
	f    *os.File
	size int64
}

// OpenFile opens the file at path for reading. It returns the error of the
// operating system if that fails.
func OpenFile(path string) (*FileSource, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("open sstable %s: not a regular file", path)
	}
	return &FileSource{f: f, size: st.Size()}, nil
}

// ReadChecked reads from the file. It returns ok's error or the operating
// system's; there is no other replica to try.
func (s *FileSource) ReadChecked(p []byte, off int64, ok func([]byte) error) error {
	if _, err := s.f.ReadAt(p, off); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return ok(p)
}

// Size returns the length that the file had when it was opened.
func (s *FileSource) Size() int64 { return s.size }

// Close closes the file. Tables opened on it fail their next read.
func (s *FileSource) Close() error { return s.f.Close() }
