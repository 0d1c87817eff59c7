package blobfs

import (
	"context"
	"errors"
	"time"
)

var errSoon = errors.New("under construction")

// Store keeps blobs and logs in data folders. It is safe for concurrent use.
type Store struct{}

// Open opens the data folders.
func Open(cfg Config) (*Store, error) { return nil, errSoon }

// Close joins the background goroutines and lets go of the folders.
func (s *Store) Close() error { return nil }

// Create begins a blob.
func (s *Store) Create(ctx context.Context) (*Writer, error) { return nil, errSoon }

// OpenBlob opens a sealed blob.
func (s *Store) OpenBlob(ctx context.Context, h Handle) (*Reader, error) { return nil, errSoon }

// Delete removes a blob.
func (s *Store) Delete(ctx context.Context, id ID) error { return errSoon }

// BlobInfo is what the store knows of a blob without reading it.
type BlobInfo struct {
	ID      ID
	Length  int64
	Extents int
	Whole   bool
	Created time.Time
}

// Blobs lists the sealed blobs.
func (s *Store) Blobs() []BlobInfo { return nil }

// LogInfo is what the store knows of a log without reading it.
type LogInfo struct {
	ID        ID
	Start     int64 // position from which the log can still be read
	Extents   int
	Bytes     int64 // on disk
	HasWriter bool
}

// Logs lists the logs.
func (s *Store) Logs() []LogInfo { return nil }

// CreateLog begins a log.
func (s *Store) CreateLog(ctx context.Context, id ID) (*LogWriter, error) { return nil, errSoon }

// OpenLog fences the writer of a log, seals the log, and reads it.
func (s *Store) OpenLog(ctx context.Context, id ID) (*LogReader, error) { return nil, errSoon }

// RemoveLog removes a log.
func (s *Store) RemoveLog(ctx context.Context, id ID) error { return errSoon }

// Problem is one thing that Verify found wrong.
type Problem struct {
	File   string
	Offset int64
	Err    error
}

// Verify checks every checksum of every file.
func (s *Store) Verify(ctx context.Context, report func(Problem)) error { return errSoon }

// Stats are figures for metrics.
type Stats struct {
	Folders []FolderStats
}

// FolderStats are those of one folder.
type FolderStats struct {
	Path string
}

// Stats returns the figures of the moment.
func (s *Store) Stats() Stats { return Stats{} }

// Writer writes one blob. It is not safe for concurrent use.
type Writer struct{}

// Write appends p to the blob.
func (w *Writer) Write(p []byte) (int, error) { return 0, errSoon }

// Seal makes the blob durable and returns its handle.
func (w *Writer) Seal(ctx context.Context) (Handle, error) { return Handle{}, errSoon }

// Abort gives up the blob; after Seal it does nothing.
func (w *Writer) Abort() {}

// Reader reads one blob. It is safe for concurrent use.
type Reader struct{}

// ReadAt reads len(p) bytes, verifying every chunk that it touches.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) { return 0, errSoon }

// ReadChecked reads len(p) bytes that ok vouches for.
func (r *Reader) ReadChecked(p []byte, off int64, ok func(p []byte) error) error { return errSoon }

// Size returns the blob's length in bytes.
func (r *Reader) Size() int64 { return 0 }

// Close lets go of the files.
func (r *Reader) Close() error { return nil }

// LogWriter appends to a log. It is safe for concurrent use, one Append at a time.
type LogWriter struct{}

// Append adds p to the log and returns the position after it, once it is durable.
func (w *LogWriter) Append(ctx context.Context, p []byte) (pos int64, err error) { return 0, errSoon }

// Release tells that nothing before pos will be read again.
func (w *LogWriter) Release(pos int64) {}

// Seal ends the log for good.
func (w *LogWriter) Seal(ctx context.Context) error { return errSoon }

// Close lets go of the log without sealing it.
func (w *LogWriter) Close() error { return nil }

// LogReader reads a log from its start.
type LogReader struct{}

// Next returns the next payload and the position after it; io.EOF at the end.
func (r *LogReader) Next() (payload []byte, pos int64, err error) { return nil, 0, errSoon }

// Start returns the position of the first payload.
func (r *LogReader) Start() int64 { return 0 }

// Close lets go of the files.
func (r *LogReader) Close() error { return nil }
