package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Writer writes one blob, which does not exist before Seal returns. It is not
// safe for concurrent use, and must be ended by Seal or Abort. Its memory is
// one buffer of 256 KiB and 4 bytes for each 64 KiB written.
type Writer struct {
	s       *Store
	id      ID
	length  int64 // bytes in extents, not in buf
	extents []*extentWriter
	buf     *writeBuffer // nil once the writer has ended
	n       int          // bytes in buf
	err     error        // sticky
}

// writeBuffer collects small writes: a multiple of the chunk, and large enough
// that the system call does not matter.
type writeBuffer [4 * chunkBytes]byte

var writeBufferPool = sync.Pool{New: func() any { return new(writeBuffer) }}

// Create begins a blob. It returns ErrDiskFull when no folder has room for
// one extent more above its reserve, ErrFolderRetired when no folder is left,
// ErrReadOnly or ErrClosed.
func (s *Store) Create(ctx context.Context) (*Writer, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	defer s.end()
	w, err := s.newWriter(NewID())
	if err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	return w, nil
}

func (s *Store) newWriter(id ID) (*Writer, error) {
	w := &Writer{s: s, id: id}
	if err := w.addExtent(); err != nil {
		w.dropExtents()
		return nil, err
	}
	w.buf = writeBufferPool.Get().(*writeBuffer)
	return w, nil
}

// ID returns the ID that the blob will have.
func (w *Writer) ID() ID { return w.id }

// Write appends p to the blob and keeps nothing of p. It may return before
// anything is on disk. A folder that fails on the way is retired and what it holds
// is written again elsewhere, unseen by the caller. Errors are those of Create, and
// ErrFolderRetired also if what a failing folder held could not be read
// back, so that the blob must be written anew. After an error the blob is lost and
// every call returns that error.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if err := w.s.begin(context.Background()); err != nil {
		return 0, w.fail(err)
	}
	defer w.s.end()
	written := 0
	for len(p) > 0 {
		// Whole chunks go past the buffer if nothing waits in it.
		if whole := len(p) / chunkBytes * chunkBytes; w.n == 0 && whole >= len(w.buf) {
			if err := w.flush(p[:whole]); err != nil {
				return written, w.fail(err)
			}
			p, written = p[whole:], written+whole
			continue
		}
		n := copy(w.buf[w.n:], p)
		w.n += n
		p, written = p[n:], written+n
		if w.n == len(w.buf) {
			if err := w.flush(w.buf[:]); err != nil {
				return written, w.fail(err)
			}
			w.n = 0
		}
	}
	return written, nil
}

// Seal makes the blob durable, files and names, and returns its handle. The
// writer has then ended, also if the error is not nil; the errors are those of Write
// and of ctx. Cancelling ctx between the steps leaves no blob, or one that
// Blobs lists and nobody has a handle of.
func (w *Writer) Seal(ctx context.Context) (Handle, error) {
	if w.err != nil {
		return Handle{}, w.err
	}
	if err := w.s.begin(ctx); err != nil {
		return Handle{}, w.fail(err)
	}
	defer w.s.end()
	h, err := w.seal(ctx)
	if err != nil {
		return Handle{}, w.fail(err)
	}
	w.end(fmt.Errorf("blob %s: %w", w.id, ErrSealed))
	return h, nil
}

// Abort gives the blob up and removes what was written of it. After Seal or
// another Abort it does nothing.
func (w *Writer) Abort() {
	if w.err == nil {
		w.dropExtents()
		w.end(fmt.Errorf("blob %s aborted: %w", w.id, ErrClosed))
	}
}

func (w *Writer) fail(err error) error {
	w.dropExtents()
	if errors.Is(err, errSource) {
		err = fmt.Errorf("%w: %w", ErrFolderRetired, err)
	}
	w.end(fmt.Errorf("write blob %s: %w", w.id, err))
	return w.err
}

func (w *Writer) end(err error) {
	w.err = err
	w.extents = nil
	if w.buf != nil {
		writeBufferPool.Put(w.buf)
		w.buf = nil
	}
}

func (w *Writer) dropExtents() {
	for _, x := range w.extents {
		x.drop()
	}
}

func (w *Writer) addExtent() error {
	x := &extentWriter{s: w.s, extentMeta: extentMeta{blob: w.id, index: len(w.extents), offset: w.length}}
	w.extents = append(w.extents, x)
	return x.start()
}

// flush writes p, a multiple of the chunk unless it is the blob's end.
func (w *Writer) flush(p []byte) error {
	for len(p) > 0 {
		x := w.extents[len(w.extents)-1]
		room := w.s.cfg.ExtentBytes - x.length
		if room == 0 {
			// Only now is it known that the extent is not the last one.
			if err := w.on(x, x.finish); err != nil {
				return err
			}
			if err := w.addExtent(); err != nil {
				return err
			}
			continue
		}
		part := p[:min(int64(len(p)), room)]
		if err := w.on(x, func() error { return x.write(part) }); err != nil {
			return err
		}
		w.length += int64(len(part))
		p = p[len(part):]
	}
	return nil
}

// on does op, and again after moving the extent if its folder fails.
func (w *Writer) on(x *extentWriter, op func() error) error {
	for {
		err := op()
		if err == nil {
			return nil
		}
		if err := x.move(err); err != nil {
			return err
		}
	}
}

func (w *Writer) seal(ctx context.Context) (Handle, error) {
	if err := w.flush(w.buf[:w.n]); err != nil {
		return Handle{}, err
	}
	last := w.extents[len(w.extents)-1]
	last.last = true
	if err := w.on(last, last.finish); err != nil {
		return Handle{}, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return Handle{}, err
		}
		again, err := w.publish()
		if err != nil {
			return Handle{}, err
		}
		if !again {
			break
		}
	}
	h := Handle{ID: w.id, Length: w.length}
	b := &blob{length: w.length, created: time.Now(), count: len(w.extents)}
	for _, x := range w.extents {
		h.Extents = append(h.Extents, x.ref(w.s.cfg.Node))
		b.parts = append(b.parts, part{index: x.index, length: x.length, folder: x.folder})
	}
	w.s.addBlob(w.id, b)
	return h, nil
}

// publish gives every extent its name and makes the names durable. It tells
// whether it must be called again, as a folder failed and its extents were moved.
func (w *Writer) publish() (again bool, err error) {
	synced := map[*folder]bool{}
	for _, x := range w.extents {
		if !x.renamed {
			if err := w.on(x, func() error { return x.rename(len(w.extents)) }); err != nil {
				return false, err
			}
		}
	}
	for _, x := range w.extents {
		if !synced[x.folder] {
			if err := x.folder.syncBlobNames(); err != nil {
				return true, x.move(err)
			}
			synced[x.folder] = true
		}
	}
	// Extents of one folder fail with it: those synced a moment ago are no
	// safer than those after.
	for _, x := range w.extents {
		if x.folder.isRetired() {
			return true, x.move(x.folder.retiredError())
		}
	}
	return false, nil
}
