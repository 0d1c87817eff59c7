package local

import (
	"context"
	"fmt"
	"sync"
)

// Writer writes one blob, which does not exist before Seal returns. It is not safe for concurrent
// use, and must be ended by Seal or Abort. Its memory is one buffer of 256 KiB and 4 bytes for each
// 64 KiB written.
type Writer struct {
	id      ID
	cfg     WriterConfig
	length  int64 // bytes in extents, not in buf
	extents []writerExtent
	sealing chan error   // result of the background seal, if one runs
	buf     *writeBuffer // nil once the writer has ended
	n       int          // bytes in buf
	err     error        // sticky
}

// writerExtent is an extent of the blob and its length.
type writerExtent struct {
	ExtentSink
	length int64
}

// ExtentSink receives the bytes of one extent, local or remote.
type ExtentSink interface {
	// Write appends p and does not retain it. Only the last Write may have a length that is not a
	// multiple of 64 KiB. After an error the extent is lost.
	Write(p []byte) error
	// Seal makes the extent durable. The Writer calls it once more for every extent before it
	// returns the blob's handle; that call must repair what has failed since.
	Seal(ctx context.Context, last bool) (ExtentRef, error)
	// Drop discards the extent, sealed or not.
	Drop()
}

// WriterConfig is the configuration of a Writer.
type WriterConfig struct {
	ExtentBytes int64 // a multiple of 64 KiB
	// Begin starts an extent at the given offset of the blob.
	Begin func(id ExtentID, offset int64) (ExtentSink, error)
	// Beside seals a full extent in the background while the next one is written. It is for sinks
	// whose Seal waits for other nodes.
	Beside bool
	// Dropped, if not nil, is called when the blob is discarded.
	Dropped func()
}

// writeBuffer collects small writes. It is a multiple of the chunk size, and large enough to
// amortize the system call.
type writeBuffer [4 * ChunkBytes]byte

var writeBufferPool = sync.Pool{New: func() any { return new(writeBuffer) }}

// Create starts a blob. ErrDiskFull if no folder has space for a whole extent above its reserve,
// ErrFolderRetired if no folder is left, ErrReadOnly, ErrClosed.
func (s *extents) Create(ctx context.Context) (*Writer, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	defer s.end()
	return s.newWriter(NewID(), 0, nil)
}

// CreateAs is Create with a given ID and WriterConfig.Dropped.
func (s *extents) CreateAs(ctx context.Context, id ID, dropped func()) (*Writer, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	defer s.end()
	return s.newWriter(id, 0, dropped)
}

// CreateHighPriorityAs is CreateAs for a blob of high-priority extents, see CreateHighPriorityExtent. bytes,
// which must not be 0, is the expected length of the blob.
func (s *extents) CreateHighPriorityAs(ctx context.Context, id ID, bytes int64, dropped func()) (*Writer, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	defer s.end()
	return s.newWriter(id, bytes, dropped)
}

// HighPriorityBytes returns the expected length of the extent at an offset of a high-priority blob with
// expected length blob. It returns 0 if blob is 0, which means normal priority.
func HighPriorityBytes(blob, offset, extentBytes int64) int64 {
	switch {
	case blob == 0:
		return 0
	case offset >= blob: // longer than expected
		return min(ChunkBytes, extentBytes)
	}
	return min(blob-offset, extentBytes)
}

func (s *extents) newWriter(id ID, priorityBytes int64, dropped func()) (*Writer, error) {
	return NewWriter(id, WriterConfig{
		ExtentBytes: s.cfg.ExtentBytes,
		Dropped:     dropped,
		Begin: func(id ExtentID, offset int64) (ExtentSink, error) {
			w, err := s.newExtentWriter(id, offset, HighPriorityBytes(priorityBytes, offset, s.cfg.ExtentBytes), false)
			if err != nil {
				return nil, err
			}
			return localSink{w}, nil
		},
	})
}

// localSink writes an extent to this store only.
type localSink struct{ *ExtentWriter }

func (x localSink) Seal(ctx context.Context, last bool) (ExtentRef, error) {
	return x.ExtentWriter.Seal(ctx, last, Holders{})
}

func (x localSink) Drop() {
	x.Abort()
	if x.sealed {
		// An extent that cannot be removed becomes garbage, which the sweep finds.
		_ = x.s.DropExtent(context.Background(), x.ID())
	}
}

// NewWriter starts a blob whose extents are created by cfg.Begin.
func NewWriter(id ID, cfg WriterConfig) (*Writer, error) {
	w := &Writer{id: id, cfg: cfg}
	if err := w.addExtent(); err != nil {
		return nil, fmt.Errorf("create blob: %w", err)
	}
	w.buf = writeBufferPool.Get().(*writeBuffer)
	return w, nil
}

// ID returns the ID that the blob will have.
func (w *Writer) ID() ID { return w.id }

// Write appends p to the blob and does not retain p. It may return before anything is on disk. A
// folder that fails is retired and its data is written again in another one. Errors are those of
// Create, and ErrFolderRetired also if the data in a failing folder could not be read back: then
// the caller must write the blob again. After an error the blob is lost and every call returns that
// error.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	written := 0
	for len(p) > 0 {
		// Whole chunks bypass an empty buffer.
		if whole := len(p) / ChunkBytes * ChunkBytes; w.n == 0 && whole >= len(w.buf) {
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

// Seal makes the blob durable, files and names, and returns its handle. It ends the writer, also if
// it returns an error. Errors are those of Write and of ctx. Cancelling ctx leaves either no blob
// or extents without a handle, which Blobs lists.
func (w *Writer) Seal(ctx context.Context) (Handle, error) {
	if w.err != nil {
		return Handle{}, w.err
	}
	h, err := w.seal(ctx)
	if err != nil {
		return Handle{}, w.fail(err)
	}
	w.end(fmt.Errorf("blob %s: %w", w.id, ErrSealed))
	return h, nil
}

// Abort discards the blob and removes what was written. After Seal or another Abort it does
// nothing.
func (w *Writer) Abort() {
	if w.err == nil {
		w.drop()
		w.end(fmt.Errorf("blob %s aborted: %w", w.id, ErrClosed))
	}
}

func (w *Writer) fail(err error) error {
	w.drop()
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

func (w *Writer) drop() {
	_ = w.waitSealed()
	for _, x := range w.extents {
		x.Drop()
	}
	if w.cfg.Dropped != nil {
		w.cfg.Dropped()
	}
}

func (w *Writer) addExtent() error {
	x, err := w.cfg.Begin(ExtentID{Blob: w.id, Index: len(w.extents)}, w.length)
	if err != nil {
		return err
	}
	w.extents = append(w.extents, writerExtent{ExtentSink: x})
	return nil
}

// flush writes p, a multiple of the chunk size unless it is the end of the blob.
func (w *Writer) flush(p []byte) error {
	for len(p) > 0 {
		x := &w.extents[len(w.extents)-1]
		space := w.cfg.ExtentBytes - x.length
		if space == 0 {
			// Only now is it known that the extent is not the last one.
			if err := w.sealExtent(x.ExtentSink); err != nil {
				return err
			}
			if err := w.addExtent(); err != nil {
				return err
			}
			continue
		}
		part := p[:min(int64(len(p)), space)]
		if err := x.Write(part); err != nil {
			return err
		}
		x.length += int64(len(part))
		w.length += int64(len(part))
		p = p[len(part):]
	}
	return nil
}

// sealExtent seals a full extent that is not the last, now or in the background.
func (w *Writer) sealExtent(x ExtentSink) error {
	if !w.cfg.Beside {
		_, err := x.Seal(context.Background(), false)
		return err
	}
	if err := w.waitSealed(); err != nil {
		return err
	}
	done := make(chan error, 1)
	w.sealing = done
	go func() {
		_, err := x.Seal(context.Background(), false)
		done <- err
	}()
	return nil
}

// waitSealed waits for the background seal, if there is one.
func (w *Writer) waitSealed() error {
	if w.sealing == nil {
		return nil
	}
	err := <-w.sealing
	w.sealing = nil
	return err
}

func (w *Writer) seal(ctx context.Context) (Handle, error) {
	if err := ctx.Err(); err != nil {
		return Handle{}, err
	}
	if err := w.flush(w.buf[:w.n]); err != nil {
		return Handle{}, err
	}
	h := Handle{ID: w.id, Length: w.length, Extents: make([]ExtentRef, len(w.extents))}
	last := len(w.extents) - 1
	var err error
	if h.Extents[last], err = w.extents[last].Seal(ctx, true); err != nil {
		return Handle{}, err
	}
	if err := w.waitSealed(); err != nil {
		return Handle{}, err
	}
	for i, x := range w.extents[:last] {
		if h.Extents[i], err = x.Seal(ctx, false); err != nil {
			return Handle{}, err
		}
	}
	return h, nil
}
