package storage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/planted"
)

// LogBlob is the log blob of this run of the server. It is created when the disk has space for it:
// a server on a full disk starts, serves reads, and rejects writes until there is space.
type LogBlob struct {
	blobs Blobs
	id    blobfs.ID
	w     atomic.Pointer[LogWriter]

	// opening guards the fields below and id. Held while the blob is created or closed.
	opening sync.Mutex
	closed  bool
	// errClosed is the error of Open after Close.
	errClosed error
	// abandoned are the blobs of failed attempts. Each of them may exist.
	abandoned []blobfs.ID
	// remove removes an abandoned blob in the background.
	remove func(blobfs.ID)
}

// NewLogBlob returns a log blob that does not exist yet. remove removes an abandoned blob in the
// background; errClosed is the error of Open after Close.
func NewLogBlob(blobs Blobs, remove func(blobfs.ID), errClosed error) *LogBlob {
	return &LogBlob{blobs: blobs, id: blobfs.NewID(), remove: remove, errClosed: errClosed}
}

// Open creates the blob, if that is not done. A failed attempt may have created a blob, and its ID
// must not be used again, so the next attempt uses a new ID. Abandoned blobs are removed once the
// log is open. The error is blobfs.ErrDiskFull, errClosed, or of a broken
// disk.
func (l *LogBlob) Open(ctx context.Context) error {
	l.opening.Lock()
	defer l.opening.Unlock()
	switch {
	case l.w.Load() != nil:
		return nil
	case l.closed: // nothing will be written, so no log is needed
		return l.errClosed
	}
	for {
		w, err := l.blobs.CreateLog(ctx, l.id)
		if err == nil {
			l.w.Store(&w)
			for _, id := range l.abandoned {
				l.remove(id)
			}
			l.abandoned = nil
			return nil
		}
		if errors.Is(err, blobfs.ErrDiskFull) || planted.On(planted.LogIDKept) { // if it exists nevertheless, the next attempt fails with ErrLogExists
			return err
		}
		l.abandoned, l.id = append(l.abandoned, l.id), blobfs.NewID()
		if !errors.Is(err, blobfs.ErrLogExists) {
			return err
		}
	}
}

// Append implements commitlog.Appender. One call at a time.
func (l *LogBlob) Append(ctx context.Context, p []byte) (int64, error) {
	if l.w.Load() == nil {
		if err := l.Open(ctx); err != nil {
			return 0, err
		}
	}
	return (*l.w.Load()).Append(ctx, p)
}

// Release implements LogWriter.
func (l *LogBlob) Release(pos int64) {
	if w := l.w.Load(); w != nil {
		(*w).Release(pos)
	}
}

// Weak implements LogWriter.
func (l *LogBlob) Weak() int64 {
	if w := l.w.Load(); w != nil {
		return (*w).Weak()
	}
	return 0
}

// Unused implements LogWriter.
func (l *LogBlob) Unused(pos int64) (bytes int64, crowded bool) {
	if w := l.w.Load(); w != nil {
		return (*w).Unused(pos)
	}
	return 0, false
}

// Extent implements LogWriter.
func (l *LogBlob) Extent() uint64 {
	if w := l.w.Load(); w != nil {
		return (*w).Extent()
	}
	return 0
}

// Slowest implements LogWriter.
func (l *LogBlob) Slowest() *string {
	if w := l.w.Load(); w != nil {
		return (*w).Slowest()
	}
	return nil
}

// Full implements LogWriter.
func (l *LogBlob) Full() error {
	if w := l.w.Load(); w != nil {
		return (*w).Full()
	}
	return nil
}

// Close implements LogWriter.
func (l *LogBlob) Close() error {
	l.opening.Lock()
	defer l.opening.Unlock()
	l.closed = true
	if w := l.w.Load(); w != nil {
		return (*w).Close()
	}
	return nil
}
