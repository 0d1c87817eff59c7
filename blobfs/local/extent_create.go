package local

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ExtentWriter writes one extent, which does not exist before Seal returns. It is not safe for
// concurrent use, and must be ended by Seal or Abort. If its folder fails, the folder is retired
// and the writer continues in another one.
type ExtentWriter struct {
	s        *extents
	x        *extentWriter
	replaces bool // replaces an existing extent
	sealed   bool
	err      error // sticky
}

// CreateExtent starts an extent at the given offset of its blob. Errors: ErrExtentExists;
// ErrDiskFull if no folder has space for a whole extent above its reserve; ErrFolderRetired if no
// folder is left; ErrReadOnly; ErrClosed.
func (s *extents) CreateExtent(ctx context.Context, id ExtentID, offset int64) (*ExtentWriter, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create extent %s: %w", id, err)
	}
	defer s.end()
	w, err := s.newExtentWriter(id, offset, 0, false)
	if err != nil {
		return nil, fmt.Errorf("create extent %s: %w", id, err)
	}
	return w, nil
}

// CreateHighPriorityExtent is CreateExtent for a high-priority extent, which may use half of a folder's
// reserve because it lets the store free space or the store's users depend on it. bytes, which must
// not be 0, is its expected length: it needs no more free space than that to start.
func (s *extents) CreateHighPriorityExtent(ctx context.Context, id ExtentID, offset, bytes int64) (*ExtentWriter, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create extent %s: %w", id, err)
	}
	defer s.end()
	w, err := s.newExtentWriter(id, offset, bytes, false)
	if err != nil {
		return nil, fmt.Errorf("create extent %s: %w", id, err)
	}
	return w, nil
}

func (s *extents) newExtentWriter(id ExtentID, offset, priorityBytes int64, replaces bool) (*ExtentWriter, error) {
	if id.Index < 0 || id.Index >= ExtentsMax || offset < 0 {
		return nil, fmt.Errorf("invalid extent %s at offset %d", id, offset)
	}
	if err := s.reserve(id, replaces); err != nil {
		return nil, err
	}
	x := &extentWriter{s: s, priorityBytes: priorityBytes, extentMeta: extentMeta{blob: id.Blob, index: id.Index, offset: offset}}
	if err := x.start(); err != nil {
		x.drop()
		s.unreserve(id)
		return nil, err
	}
	return &ExtentWriter{s: s, x: x, replaces: replaces}, nil
}

// reserve marks an extent as being written. ErrExtentExists if it is already marked, or if it
// exists and is not to be replaced; ErrNoExtent if there is none to replace.
func (s *extents) reserve(id ExtentID, replaces bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := len(s.partsLocked(id)) > 0
	switch {
	case s.mu.writing[id], here && !replaces, s.quarantine.quarantinedLocked(id) != nil:
		return ErrExtentExists
	case replaces && !here:
		return ErrNoExtent
	}
	s.mu.writing[id] = true
	return nil
}

func (s *extents) unreserve(id ExtentID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.writing, id)
}

// ID returns the ID of the extent.
func (w *ExtentWriter) ID() ExtentID { return w.x.id() }

// Length returns the number of bytes written.
func (w *ExtentWriter) Length() int64 { return w.x.length }

// CRC returns the checksum of the chunk table of the bytes written.
func (w *ExtentWriter) CRC() uint32 { return tableCRC(w.x.chunks) }

// Write appends p and does not retain it. Only the last Write of an extent may have a length that
// is not a multiple of 64 KiB. Errors: those of CreateExtent; an error if the extent exceeds the
// store's extent size; ErrFolderRetired also if the data in a failing folder could not be read
// back. After an error the extent is lost.
func (w *ExtentWriter) Write(p []byte) error {
	if err := w.enter(context.Background()); err != nil {
		return err
	}
	defer w.s.end()
	switch {
	case w.sealed:
		return fmt.Errorf("write extent %s: %w", w.ID(), ErrSealed)
	case w.x.length%ChunkBytes != 0:
		return w.fail(errors.New("write after a short chunk"))
	case int64(len(p)) > w.s.cfg.ExtentBytes-w.x.length:
		return w.fail(fmt.Errorf("extent exceeds %d bytes", w.s.cfg.ExtentBytes))
	}
	return w.on(func() error { return w.x.write(p) })
}

// ReadBack reads len(p) bytes of the data written so far and verifies them with the checksums taken
// when it was written.
func (w *ExtentWriter) ReadBack(p []byte, off int64) error {
	if err := w.enter(context.Background()); err != nil {
		return err
	}
	defer w.s.end()
	x := w.x
	if off < 0 || off > x.length || int64(len(p)) > x.length-off {
		return fmt.Errorf("read back %d bytes at %d of %d written", len(p), off, x.length)
	}
	if x.file == nil {
		file, err := x.folder.fs.OpenRead(x.name)
		if err != nil {
			return err
		}
		defer file.Close()
		r := ExtentReader{file: file, name: x.name, length: x.length, chunks: x.chunks}
		return r.ReadVerified(p, off)
	}
	r := ExtentReader{file: x.file, name: x.name, length: x.length, chunks: x.chunks}
	return r.ReadVerified(p, off)
}

// Seal makes the extent durable, with its name and, unless its epoch is 0, with the holder list.
// last marks the last extent of the blob. Another call does nothing, unless the folder has been
// retired since: then the extent is written again in another one. Errors are those of Write and of
// ctx, which is checked between the steps. After an error the extent is lost, unless it was sealed
// before.
func (w *ExtentWriter) Seal(ctx context.Context, last bool, h Holders) (ExtentRef, error) {
	if err := w.enter(ctx); err != nil {
		return ExtentRef{}, err
	}
	defer w.s.end()
	if err := h.Validate(); err != nil {
		return ExtentRef{}, w.fail(err)
	}
	x := w.x
	if w.sealed && !x.folder.isRetired() {
		return x.ref(w.s.cfg.Node), nil
	}
	x.last = x.last || last
	err := w.on(func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return x.publish(h)
	})
	if err != nil {
		return ExtentRef{}, err
	}
	p := part{index: x.index, of: x.of(), length: x.length, folder: x.folder, created: time.Now(), holders: newHolderList(h)}
	if w.replaces && !w.sealed {
		if err := w.s.replacePart(x.blob, p); err != nil {
			x.replacedFile = x.replacedFile && !errors.Is(err, ErrNoExtent) // dropped meanwhile
			return ExtentRef{}, w.fail(err)
		}
	} else {
		w.s.addPart(x.blob, p)
	}
	w.sealed = true
	return x.ref(w.s.cfg.Node), nil
}

// Abort discards the extent and removes what was written. After Seal or another Abort it does
// nothing.
func (w *ExtentWriter) Abort() {
	if w.err == nil && !w.sealed {
		w.fail(ErrClosed)
	}
}

// enter starts a call.
func (w *ExtentWriter) enter(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	if err := w.s.begin(ctx); err != nil {
		return w.fail(err)
	}
	return nil
}

// on runs op, and runs it again after moving the extent if the folder fails.
func (w *ExtentWriter) on(op func() error) error {
	for {
		err := op()
		if err == nil {
			return nil
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return w.fail(err)
		}
		if err := w.x.move(err); err != nil {
			return w.fail(err)
		}
	}
}

// fail ends the writer with an error.
func (w *ExtentWriter) fail(err error) error {
	if !w.sealed {
		w.x.drop()
		w.s.unreserve(w.ID())
	}
	if errors.Is(err, errSource) {
		err = fmt.Errorf("%w: %w", ErrFolderRetired, err)
	}
	w.err = fmt.Errorf("write extent %s: %w", w.ID(), err)
	return w.err
}

// publish makes the extent and its name durable, and the holder list before the name. After a
// partial attempt it continues with the steps that are missing.
func (x *extentWriter) publish(h Holders) error {
	noted := make(chan error, 1)
	note := h.Epoch != 0 && !x.holdersDurable
	if note {
		go func() { noted <- x.folder.holders.append(x.id(), h) }()
	}
	var err error
	if !x.finished {
		err = x.finish()
	}
	if note {
		errNote := <-noted
		x.holdersDurable = errNote == nil
		err = errors.Join(err, errNote)
	}
	if err == nil && !x.renamed {
		err = x.rename()
	}
	if err == nil {
		err = x.folder.syncBlobNames()
	}
	if err == nil && x.folder.isRetired() {
		err = x.folder.retiredError()
	}
	return err
}
