package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
)

// Reader reads one blob. It is safe for concurrent use, except Close. It keeps
// one file open for each of the blob's extents that are here until Close, and 4 bytes of
// memory for each 64 KiB; whoever opens many readers bounds their number. A blob
// that is deleted stays readable through its readers.
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

// ExtentSource gives the bytes of one sealed extent, wherever they are. Ranges are
// always within it. It is safe for concurrent use, except Close.
type ExtentSource interface {
	// ReadVerified reads len(p) bytes at off that are right beyond doubt.
	ReadVerified(p []byte, off int64) error
	// ReadRaw reads them without that if it is cheaper; false if it cannot.
	ReadRaw(p []byte, off int64) bool
	Close() error
}

// OpenBlob opens a sealed blob. It reads and checks the chunk table of each
// extent, so a handle of another blob or a truncated file is found here:
// ErrNoBlob if the blob or one of its extents is not here (and ErrFolderRetired as well, if it may be
// in a folder that could not be read), *CorruptError if
// an extent is damaged or not the one that h means.
func (s *Store) OpenBlob(ctx context.Context, h Handle) (*Reader, error) {
	return OpenExtents(h, func(ref ExtentRef) (ExtentSource, error) {
		x, err := s.OpenRef(ctx, h.ID, ref)
		if err != nil {
			return nil, err
		}
		return x, nil
	})
}

// OpenRef opens an extent of a blob as its handle says, with OpenExtent's errors.
func (s *Store) OpenRef(ctx context.Context, blob ID, ref ExtentRef) (*ExtentReader, error) {
	x, err := s.OpenExtent(ctx, ExtentID{Blob: blob, Index: ref.Index}, ref.CRC)
	if err == nil && x.length != ref.Length {
		x.Close()
		err = fmt.Errorf("open extent %d: %w: %w", ref.Index, ErrOtherExtent,
			&CorruptError{File: x.name, Offset: pageBytes + x.length, Reason: fmt.Sprintf("extent has %d bytes and not %d", x.length, ref.Length)})
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// OpenExtents returns a Reader of the blob that h tells of, whose extents come from open.
// An ErrNoExtent becomes an ErrNoBlob.
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

// OnClose has the first Close call f.
func (r *Reader) OnClose(f func()) { r.closed = f }

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
		if err := x.ReadVerified(part, in); err != nil {
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
		if !x.ReadRaw(part, in) {
			return false
		}
		p, off = p[len(part):], off+int64(len(part))
	}
	return true
}

// find returns the extent that holds the byte at off, nil if there is none.
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

// Close closes the files. It must not run beside reads; reads after it fail.
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

// HandleOf returns the handle of a blob that is here whole. ErrNoExtent if it is not.
func (s *Store) HandleOf(ctx context.Context, id ID) (Handle, error) {
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
