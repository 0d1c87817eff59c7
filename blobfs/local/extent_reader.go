package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

// ExtentReader reads one sealed extent. It is safe for concurrent use, except Close. It holds its
// file open until then, and 4 bytes of memory for each 64 KiB. A dropped extent stays readable
// through its open readers.
type ExtentReader struct {
	file   vfs.File
	name   string
	length int64
	chunks []uint32
	meta   extentMeta
}

// OpenExtent opens a sealed extent and verifies its chunk table, whose checksum must be crc. An
// extent in quarantine leaves it. ErrNoExtent if the store does not have the extent (joined with
// ErrFolderRetired if an unreadable folder may have it); *CorruptError if it is damaged or another
// one.
func (s *extents) OpenExtent(ctx context.Context, id ExtentID, crc uint32) (*ExtentReader, error) {
	x, err := s.openExtent(ctx, id, func(m *extentMeta) bool { return m.tableCRC == crc }, crc)
	if err != nil {
		return nil, fmt.Errorf("open extent %s: %w", id, err)
	}
	return x, nil
}

// OpenToCopy is OpenExtent for a copy of the extent or a check, which do not prove that the extent is in
// use. ErrNoExtent if the extent is in quarantine, where it stays.
func (s *extents) OpenToCopy(ctx context.Context, id ExtentID, crc uint32) (*ExtentReader, error) {
	err := s.beginReadOnly(ctx)
	var x *ExtentReader
	if err == nil {
		defer s.end()
		if x, err = s.openListed(id, func(m *extentMeta) bool { return m.tableCRC == crc }, crc); errors.Is(err, ErrNoExtent) {
			err = s.missingError(id)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open extent %s to copy it: %w", id, err)
	}
	return x, nil
}

// StatExtent returns what the index and the extent's file record. Errors are those of OpenExtent.
func (s *extents) StatExtent(ctx context.Context, id ExtentID) (ExtentStat, error) {
	if err := s.beginReadOnly(ctx); err != nil {
		return ExtentStat{}, fmt.Errorf("stat extent %s: %w", id, err)
	}
	defer s.end()
	info, err := s.ExtentInfo(id)
	if err == nil {
		var x *ExtentReader
		if x, err = s.openListed(id, func(*extentMeta) bool { return true }, 0); err == nil {
			defer x.Close()
			info.Length, info.Last = x.length, x.meta.last
			return ExtentStat{ExtentInfo: info, Offset: x.meta.offset, CRC: x.meta.tableCRC}, nil
		}
	}
	if errors.Is(err, ErrNoExtent) {
		err = s.missingError(id)
	}
	return ExtentStat{}, fmt.Errorf("stat extent %s: %w", id, err)
}

// openExtent opens the first valid file of the extent, in quarantine or not.
func (s *extents) openExtent(ctx context.Context, id ExtentID, matches func(*extentMeta) bool, want uint32) (*ExtentReader, error) {
	if err := s.beginReadOnly(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	x, err := s.openListed(id, matches, want)
	if errors.Is(err, ErrNoExtent) {
		if x, err = s.quarantine.openQuarantined(id, matches); err != nil {
			// Another caller may have taken it out of quarantine in between.
			x, err = s.openListed(id, matches, want)
		}
	}
	if errors.Is(err, ErrNoExtent) {
		err = s.missingError(id)
	}
	return x, err
}

// openListed opens the first valid file of an extent that is not in quarantine.
func (s *extents) openListed(id ExtentID, matches func(*extentMeta) bool, want uint32) (*ExtentReader, error) {
	s.mu.Lock()
	parts := slices.Clone(s.partsLocked(id))
	s.mu.Unlock()
	err := error(ErrNoExtent)
	for _, p := range parts {
		x, openErr := openExtentFile(p.folder.fs, p.path(id.Blob))
		if openErr == nil && (x.meta.blob != id.Blob || x.meta.index != id.Index || !matches(&x.meta)) {
			x.file.Close()
			openErr = fmt.Errorf("%w: %w", ErrOtherExtent, &CorruptError{File: x.name, Offset: pageBytes + x.length, Got: x.meta.tableCRC, Want: want,
				Reason: fmt.Sprintf("file has extent %d of blob %s with table checksum %08x, want %d of %s with %08x", x.meta.index, x.meta.blob, x.meta.tableCRC, id.Index, id.Blob, want)})
		}
		if openErr == nil {
			return x, nil
		}
		if !errors.Is(openErr, fs.ErrNotExist) {
			err = openErr
		}
	}
	return nil, err
}

// missingError returns the error for an extent without a file: ErrNoExtent, or a *CorruptError if the
// index has the extent but its files were removed by something else. The latter must be reported as
// damage, or nothing would repair the lost replica.
func (s *extents) missingError(id ExtentID) error {
	s.quarantine.op.Lock() // excludes renames
	defer s.quarantine.op.Unlock()
	var name string
	for range 2 { // a drop removes the extent from the index before its file
		s.mu.Lock()
		parts := slices.Clone(s.partsLocked(id))
		s.mu.Unlock()
		if len(parts) == 0 {
			return s.withUnreadable(ErrNoExtent)
		}
		for _, p := range parts {
			name = p.path(id.Blob)
			if _, _, err := p.folder.fs.Stat(name); !errors.Is(err, fs.ErrNotExist) {
				return s.withUnreadable(ErrNoExtent) // it exists by now, or its folder is unreadable
			}
		}
	}
	return &CorruptError{File: name, Reason: "file is missing"}
}

// withUnreadable adds to an ErrNoExtent the unreadable folders that may have the extent.
func (s *extents) withUnreadable(err error) error {
	for _, f := range s.folders {
		if f.unreadable {
			err = fmt.Errorf("%w: %w", err, f.retiredError())
		}
	}
	return err
}

// openExtentFile opens the file of a sealed extent and checks all of it except the payload and the
// header, which has nothing that the footer does not have.
func openExtentFile(fsys vfs.FS, name string) (*ExtentReader, error) {
	file, err := fsys.OpenRead(name)
	if err != nil {
		return nil, asCorrupt(err)
	}
	x, err := readExtentTail(file, name)
	if err != nil {
		file.Close()
		return nil, err
	}
	return x, nil
}

func readExtentTail(file vfs.File, name string) (*ExtentReader, error) {
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	length, ok := payloadBytes(size)
	if !ok {
		return nil, &CorruptError{File: name, Reason: fmt.Sprintf("invalid size of an extent file: %d bytes", size)}
	}
	at := pageBytes + length
	tail := make([]byte, size-at)
	if _, err := readFull(file, tail, at); err != nil {
		return nil, readError(err, name, at)
	}
	meta, chunks, err := decodeTail(tail, name, at)
	if err != nil {
		return nil, err
	}
	return &ExtentReader{file: file, name: name, length: length, chunks: chunks, meta: meta}, nil
}

// readFull is ReadAt that reports every end of file as unexpected.
func readFull(f vfs.File, p []byte, off int64) (int, error) {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readError converts an unexpected end of file to a *CorruptError.
func readError(err error, name string, off int64) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &CorruptError{File: name, Offset: off, Reason: "file is truncated"}
	}
	if errors.As(err, new(*vfs.DamageError)) {
		return asCorrupt(err)
	}
	return fmt.Errorf("read %s at offset %d: %w", name, off, err)
}

// Length returns the number of bytes of the blob in the extent.
func (x *ExtentReader) Length() int64 { return x.length }

// Close closes the file. It must not run concurrently with reads; later reads fail.
func (x *ExtentReader) Close() error { return x.file.Close() }

// ReadRaw reads len(p) bytes without verifying them. It returns false if the read fails.
func (x *ExtentReader) ReadRaw(p []byte, off int64) bool {
	n, _ := x.file.ReadAt(p, pageBytes+off)
	return n == len(p)
}

// ReadVerified reads len(p) bytes, which must be within the extent, and verifies each 64 KiB chunk
// that it touches. A *CorruptError locates a corrupt chunk. Runs of whole chunks are read directly
// into p; a partial chunk at either end goes through a buffer.
func (x *ExtentReader) ReadVerified(p []byte, off int64) error {
	if off < 0 || off > x.length || int64(len(p)) > x.length-off {
		return fmt.Errorf("read %d bytes at %d of an extent of %d bytes: %w", len(p), off, x.length, io.ErrUnexpectedEOF)
	}
	for len(p) > 0 {
		i := off / ChunkBytes
		start := i * ChunkBytes
		if whole := x.wholeChunks(p, off); whole > 0 {
			if err := x.readChunks(p[:whole], i); err != nil {
				return err
			}
			p, off = p[whole:], off+whole
			continue
		}
		buf := chunkPool.Get().(*[ChunkBytes]byte)
		chunk := buf[:min(ChunkBytes, x.length-start)]
		err := x.readChunks(chunk, i)
		n := 0
		if err == nil {
			n = copy(p, chunk[off-start:])
		}
		chunkPool.Put(buf)
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// wholeChunks returns how many bytes of p, which starts at off, are whole chunks.
func (x *ExtentReader) wholeChunks(p []byte, off int64) int64 {
	if off%ChunkBytes != 0 {
		return 0
	}
	if off+int64(len(p)) == x.length {
		return int64(len(p))
	}
	return int64(len(p)) / ChunkBytes * ChunkBytes
}

// readChunks reads and verifies whole chunks, starting with chunk i.
func (x *ExtentReader) readChunks(p []byte, i int64) error {
	at := pageBytes + i*ChunkBytes
	if _, err := readFull(x.file, p, at); err != nil {
		return readError(err, x.name, at)
	}
	for chunk := range slices.Chunk(p, ChunkBytes) {
		if got := crc.Sum(chunk); got != x.chunks[i] {
			return &CorruptError{File: x.name, Offset: pageBytes + i*ChunkBytes, Got: got, Want: x.chunks[i]}
		}
		i++
	}
	return nil
}
