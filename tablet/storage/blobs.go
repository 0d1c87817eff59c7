package storage

import (
	"context"
	"io"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/sstable"
)

// Blobs is the block store as a tablet server uses it.
type Blobs interface {
	// Create begins a blob. The writer's Seal returns only when the blob is durable.
	Create(ctx context.Context) (BlobWriter, error)
	// CreateHighPriority creates a high-priority blob of about the given size in bytes, 0 if unknown. It
	// may use the reserve of a full disk. It is for blobs that let logs be released, or without
	// which nothing can be deleted.
	CreateHighPriority(ctx context.Context, bytes int64) (BlobWriter, error)
	// OpenBlob opens a sealed blob. The error is blobfs.ErrNoBlob if no replica holds it
	// completely.
	OpenBlob(ctx context.Context, h blobfs.Handle) (BlobReader, error)
	// Delete removes a blob. Deleting a missing blob is not an error.
	Delete(ctx context.Context, id blobfs.ID) error
	// Abandon reports that this server no longer needs a blob that other servers may still need.
	Abandon(h blobfs.Handle)

	// CreateLog creates a log blob.
	CreateLog(ctx context.Context, id blobfs.ID) (LogWriter, error)
	// Logs lists the log blobs of this server.
	Logs(ctx context.Context) ([]blobfs.ID, error)
	// OpenLog fences the log's writer, if there still is one, and opens the log for reading.
	OpenLog(ctx context.Context, id blobfs.ID) (LogReader, error)
	// RemoveLog removes a log blob.
	RemoveLog(ctx context.Context, id blobfs.ID) error
}

// BlobWriter writes one immutable blob.
type BlobWriter interface {
	io.Writer
	// Seal makes the blob durable and returns its handle.
	Seal(ctx context.Context) (blobfs.Handle, error)
	// Abort discards the blob. It does nothing after Seal.
	Abort()
}

// BlobReader reads one sealed blob.
type BlobReader interface {
	sstable.Source
	io.Closer
}

// LogWriter appends to a log blob.
type LogWriter interface {
	commitlog.Appender
	// Release reports that nothing below pos will be read again.
	Release(pos int64)
	// Weak returns the position up to which the log lacks its usual redundancy. Memtable entries
	// logged below it should be written out. Zero if the log has its full redundancy.
	Weak() int64
	// Unused returns the bytes of disk space, of one replica, that the extents that end after pos have
	// beside their data, because the log left them early. crowded means that they are so many that the
	// log may soon accept no appends.
	Unused(pos int64) (bytes int64, crowded bool)
	// Extent returns the number of the extent that is appended to; 0 if the log has none.
	Extent() uint64
	// Full returns a blobfs.ErrDiskFull if appends are blocked because neither a disk nor its
	// list has space for the log to continue elsewhere, and nil otherwise.
	Full() error
	// Slowest returns the node whose replica the last append waited for; nil if it is unknown.
	Slowest() *string
	// Close ends writing. Appended data is kept.
	Close() error
}

// LogReader reads a log blob from its start.
type LogReader interface {
	// Next returns the next batch, or io.EOF after the last complete one.
	Next() (payload []byte, pos int64, err error)
	Close() error
}
