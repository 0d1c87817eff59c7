package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

// Reader reads one blob. It is safe for concurrent use, except Close. It keeps
// one file open for each of the blob's extents until Close, and 4 bytes of
// memory for each 64 KiB; whoever opens many readers bounds their number. A blob
// that is deleted stays readable through its readers.
type Reader struct {
	size    int64
	extents []extentReader
}

// extentReader reads one extent's file.
type extentReader struct {
	file   vfs.File
	name   string
	start  int64 // in the blob
	length int64
	chunks []uint32
}

// OpenBlob opens a sealed blob. It reads and checks the chunk table of each
// extent, so a handle of another blob or a truncated file is found here:
// ErrNoBlob if the blob or one of its extents is not here (and ErrFolderRetired as well, if it may be
// in a folder that could not be read), *CorruptError if
// an extent is damaged or not the one that h means.
func (s *Store) OpenBlob(ctx context.Context, h Handle) (*Reader, error) {
	if err := s.beginReadOnly(ctx); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", h.ID, err)
	}
	defer s.end()
	s.mu.Lock()
	b := s.mu.blobs[h.ID]
	s.mu.Unlock()
	if b == nil {
		b = &blob{}
	}
	r := &Reader{}
	for _, ref := range h.Extents {
		x, err := b.openExtent(h.ID, ref)
		if errors.Is(err, ErrNoBlob) {
			err = s.whyMissing(err)
		}
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("open blob %s: extent %d: %w", h.ID, ref.Index, err)
		}
		x.start = r.size
		r.size += ref.Length
		r.extents = append(r.extents, x)
	}
	if r.size != h.Length {
		r.Close()
		return nil, fmt.Errorf("open blob %s: %w", h.ID, errBadHandle)
	}
	return r, nil
}

// whyMissing adds to an ErrNoBlob the folders that could not be read and may have it.
func (s *Store) whyMissing(err error) error {
	for _, f := range s.folders {
		if f.unreadable {
			err = fmt.Errorf("%w: %w", err, f.retiredError())
		}
	}
	return err
}

// openExtent opens the first file of the extent that is what ref says.
func (b *blob) openExtent(id ID, ref ExtentRef) (extentReader, error) {
	err := error(ErrNoBlob)
	for _, p := range b.parts {
		if p.index != ref.Index {
			continue
		}
		x, openErr := openExtentFile(p.folder.fs, p.path(id, b.count))
		if openErr == nil && (x.meta.blob != id || x.meta.index != ref.Index || x.meta.length != ref.Length || x.meta.tableCRC != ref.CRC) {
			x.file.Close()
			openErr = &CorruptError{File: x.name, Offset: pageBytes + x.length, Got: x.meta.tableCRC, Want: ref.CRC,
				Reason: fmt.Sprintf("this is extent %d of blob %s with table checksum %08x, not %d of %s with %08x", x.meta.index, x.meta.blob, x.meta.tableCRC, ref.Index, id, ref.CRC)}
		}
		if openErr == nil {
			return x.extentReader, nil
		}
		if !errors.Is(openErr, fs.ErrNotExist) {
			err = openErr
		}
	}
	return extentReader{}, err
}

type openedExtent struct {
	extentReader
	meta extentMeta
}

// openExtentFile opens a sealed extent's file and checks all of it but the payload
// and the header, which says nothing that the footer does not.
func openExtentFile(fsys vfs.FS, name string) (openedExtent, error) {
	file, err := fsys.OpenRead(name)
	if err != nil {
		return openedExtent{}, err
	}
	x, err := readExtentTail(file, name)
	if err != nil {
		file.Close()
	}
	return x, err
}

func readExtentTail(file vfs.File, name string) (openedExtent, error) {
	size, err := file.Size()
	if err != nil {
		return openedExtent{}, err
	}
	length, ok := payloadBytes(size)
	if !ok {
		return openedExtent{}, &CorruptError{File: name, Reason: fmt.Sprintf("no extent has a file of %d bytes", size)}
	}
	at := pageBytes + length
	tail := make([]byte, size-at)
	if _, err := readFull(file, tail, at); err != nil {
		return openedExtent{}, readError(err, name, at)
	}
	meta, chunks, err := decodeTail(tail, name, at)
	if err != nil {
		return openedExtent{}, err
	}
	return openedExtent{extentReader{file: file, name: name, length: length, chunks: chunks}, meta}, nil
}

// readFull is ReadAt where an end of file is always unexpected.
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

// readError makes a file that ends early a corrupt one.
func readError(err error, name string, off int64) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &CorruptError{File: name, Offset: off, Reason: "the file ends early"}
	}
	return fmt.Errorf("read %s at offset %d: %w", name, off, err)
}

// Size returns the blob's length in bytes.
func (r *Reader) Size() int64 { return r.size }

// ReadAt implements io.ReaderAt. Each chunk of 64 KiB that it touches is read
// whole and verified: a *CorruptError says which is rotten. Of the bytes in p only the
// first n are the blob's; the others may be anything.
func (r *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read blob at negative offset %d", off)
	}
	for n < len(p) {
		x := r.find(off)
		if x == nil {
			return n, io.EOF
		}
		in := off - x.start
		part := p[n:min(int64(len(p)), int64(n)+x.length-in)]
		if err := x.readVerified(part, in); err != nil {
			return n, err
		}
		n, off = n+len(part), off+int64(len(part))
	}
	return n, nil
}

// ReadChecked reads len(p) bytes at off and no more, and then asks ok whether
// they are right: for callers that keep a checksum of their own over just these bytes.
// If ok says no, or the read fails, the chunks around are verified: a *CorruptError then
// names the rotten one. If they are whole after all, ok is asked once more, and
// its error is the result. Nil means that ok said yes. A range that is not
// within the blob is io.ErrUnexpectedEOF.
//
// ok may be called twice, and keeps nothing of p. Nothing is allocated on the
// way that succeeds.
func (r *Reader) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	if off < 0 || off > r.size || int64(len(p)) > r.size-off {
		return fmt.Errorf("read %d bytes at %d of a blob of %d bytes: %w", len(p), off, r.size, io.ErrUnexpectedEOF)
	}
	if r.readRaw(p, off) && ok(p) == nil {
		return nil
	}
	if _, err := r.ReadAt(p, off); err != nil {
		return err
	}
	return ok(p)
}

// readRaw reads without verifying; false if any read fails.
func (r *Reader) readRaw(p []byte, off int64) bool {
	for len(p) > 0 {
		x := r.find(off)
		in := off - x.start
		part := p[:min(int64(len(p)), x.length-in)]
		if n, _ := x.file.ReadAt(part, pageBytes+in); n < len(part) {
			return false
		}
		p, off = p[len(part):], off+int64(len(part))
	}
	return true
}

// find returns the extent that holds the byte at off, nil if there is none.
func (r *Reader) find(off int64) *extentReader {
	if off >= r.size {
		return nil
	}
	if len(r.extents) == 1 {
		return &r.extents[0]
	}
	i := sort.Search(len(r.extents), func(i int) bool { return r.extents[i].start+r.extents[i].length > off })
	return &r.extents[i]
}

// Close closes the files. It must not run beside reads; reads after it fail.
func (r *Reader) Close() error {
	var errs []error
	for i := range r.extents {
		errs = append(errs, r.extents[i].file.Close())
	}
	return errors.Join(errs...)
}

// readVerified reads part of the payload, which has that much. Runs of whole chunks
// are read straight into p; at either end a chunk may go through a buffer.
func (x *extentReader) readVerified(p []byte, off int64) error {
	for len(p) > 0 {
		i := off / chunkBytes
		start := i * chunkBytes
		if whole := x.wholeChunks(p, off); whole > 0 {
			if err := x.readChunks(p[:whole], i); err != nil {
				return err
			}
			p, off = p[whole:], off+whole
			continue
		}
		buf := chunkPool.Get().(*[chunkBytes]byte)
		chunk := buf[:min(chunkBytes, x.length-start)]
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
func (x *extentReader) wholeChunks(p []byte, off int64) int64 {
	if off%chunkBytes != 0 {
		return 0
	}
	if off+int64(len(p)) == x.length {
		return int64(len(p))
	}
	return int64(len(p)) / chunkBytes * chunkBytes
}

// readChunks reads and verifies whole chunks, the first being number i.
func (x *extentReader) readChunks(p []byte, i int64) error {
	at := pageBytes + i*chunkBytes
	if _, err := readFull(x.file, p, at); err != nil {
		return readError(err, x.name, at)
	}
	for chunk := range slices.Chunk(p, chunkBytes) {
		if got := crc.Sum(chunk); got != x.chunks[i] {
			return &CorruptError{File: x.name, Offset: pageBytes + i*chunkBytes, Got: got, Want: x.chunks[i]}
		}
		i++
	}
	return nil
}
