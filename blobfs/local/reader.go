package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
)

// Reader reads one blob. It is safe for concurrent use, except Close. It holds a file open for each
// of the blob's local extents until Close, and 4 bytes of memory for each 64 KiB; the caller bounds
// the number of readers. A deleted blob stays readable through its open readers.
type Reader struct {
	size    int64
	extents []readerExtent
	closed  func() // called by Close, once; may be nil
}

// readerExtent is an extent and its place in the blob.
type readerExtent struct {
	ExtentSource
	start, length int64
}

// ExtentSource reads one sealed extent, local or remote. Ranges are always within the extent. It is
// safe for concurrent use, except Close.
type ExtentSource interface {
	// ReadVerified reads len(p) bytes at off and verifies them.
	ReadVerified(p []byte, off int64) error
	// ReadRaw reads them without verification, if that is cheaper. It returns false if it cannot.
	ReadRaw(p []byte, off int64) bool
	Close() error
}

// OpenBlob opens a sealed blob. It verifies the chunk table of each extent, which detects a handle
// of another blob and a truncated file. ErrNoBlob if the store lacks the blob or one of its extents
// (joined with ErrFolderRetired if an unreadable folder may have it); *CorruptError if an extent is
// damaged or not the one in h.
func (s *extents) OpenBlob(ctx context.Context, h Handle) (*Reader, error) {
	return OpenExtents(h, func(ref ExtentRef) (ExtentSource, error) {
		x, err := s.OpenRef(ctx, h.ID, ref)
		if err != nil {
			return nil, err
		}
		return x, nil
	})
}

// OpenRef opens the extent described by ref, with OpenExtent's errors.
func (s *extents) OpenRef(ctx context.Context, blob ID, ref ExtentRef) (*ExtentReader, error) {
	x, err := s.OpenExtent(ctx, ExtentID{Blob: blob, Index: ref.Index}, ref.CRC)
	if err == nil && x.length != ref.Length {
		x.Close()
		err = fmt.Errorf("open extent %d: %w: %w", ref.Index, ErrOtherExtent,
			&CorruptError{File: x.name, Offset: pageBytes + x.length, Reason: fmt.Sprintf("extent has %d bytes, want %d", x.length, ref.Length)})
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// OpenExtents returns a Reader of the blob described by h. open returns its extents. An ErrNoExtent
// becomes an ErrNoBlob.
func OpenExtents(h Handle, open func(ExtentRef) (ExtentSource, error)) (*Reader, error) {
	r := &Reader{extents: make([]readerExtent, 0, len(h.Extents))}
	for _, ref := range h.Extents {
		x, err := open(ref)
		if err != nil {
			r.Close()
			if errors.Is(err, ErrNoExtent) {
				err = fmt.Errorf("%w: %w", ErrNoBlob, err)
			}
			return nil, fmt.Errorf("open blob %s: %w", h.ID, err)
		}
		r.extents = append(r.extents, readerExtent{x, r.size, ref.Length})
		r.size += ref.Length
	}
	if r.size != h.Length {
		r.Close()
		return nil, fmt.Errorf("open blob %s: %w", h.ID, errBadHandle)
	}
	return r, nil
}

// OnClose makes the first Close call f.
func (r *Reader) OnClose(f func()) { r.closed = f }

// Size returns the blob's length in bytes.
func (r *Reader) Size() int64 { return r.size }

// ReadAt implements io.ReaderAt. Each 64 KiB chunk that it touches is read whole and verified. A
// *CorruptError locates a corrupt chunk. After an error only the first n bytes of p are valid; the
// others are undefined.
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
		if err := x.ReadVerified(part, in); err != nil {
			return n, err
		}
		n, off = n+len(part), off+int64(len(part))
	}
	return n, nil
}

// ReadChecked reads exactly len(p) bytes at off and calls ok to verify them. It is for callers with
// a checksum of their own over these bytes. If ok returns an error or the read fails, the
// surrounding chunks are verified, and a *CorruptError locates a corrupt one. If they are intact,
// ok is called again and its error is the result. A range outside the blob is io.ErrUnexpectedEOF.
//
// ok may be called twice, and must not retain p. The successful path does not allocate.
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

// readRaw reads without verifying. It returns false if any read fails.
func (r *Reader) readRaw(p []byte, off int64) bool {
	for len(p) > 0 {
		x := r.find(off)
		in := off - x.start
		part := p[:min(int64(len(p)), x.length-in)]
		if !x.ReadRaw(part, in) {
			return false
		}
		p, off = p[len(part):], off+int64(len(part))
	}
	return true
}

// find returns the extent with the byte at off, or nil.
func (r *Reader) find(off int64) *readerExtent {
	if off >= r.size {
		return nil
	}
	if len(r.extents) == 1 {
		return &r.extents[0]
	}
	i := sort.Search(len(r.extents), func(i int) bool { return r.extents[i].start+r.extents[i].length > off })
	return &r.extents[i]
}

// Close closes the files. It must not run concurrently with reads; later reads fail.
func (r *Reader) Close() error {
	var errs []error
	for i := range r.extents {
		errs = append(errs, r.extents[i].Close())
	}
	if r.closed != nil {
		r.closed()
		r.closed = nil
	}
	return errors.Join(errs...)
}

// HandleOf returns the handle of a blob whose extents are all in this store. ErrNoExtent if one is
// not.
func (s *extents) HandleOf(ctx context.Context, id ID) (Handle, error) {
	h := Handle{ID: id}
	for i := 0; ; i++ {
		st, err := s.StatExtent(ctx, ExtentID{Blob: id, Index: i})
		if err != nil {
			return h, err
		}
		h.Extents = append(h.Extents, ExtentRef{Index: i, Length: st.Length, CRC: st.CRC})
		if h.Length += st.Length; st.Last {
			return h, nil
		}
	}
}
