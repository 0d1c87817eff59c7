package backupdir

import (
	"context"
	"io"
)

// Store keeps the objects of a Dir: a directory of a file system (OpenDirectory), or a bucket (package s3store). Names have slashes, and no part that begins
// with a dot. An object that does not exist is fs.ErrNotExist. It is safe for concurrent use.
type Store interface {
	// Location returns where an object is, for people; an empty name means the store.
	Location(name string) string
	// Create stores an object of size bytes. write writes them, and returns its name, or the error that Create returns. The object exists as a whole or
	// not at all. If it must be absent, one that exists is fs.ErrExist; else it is replaced, but for the bytes of two at once nothing is mixed.
	Create(ctx context.Context, size int64, absent bool, write func(w io.Writer) (name string, err error)) error
	// Sync makes it durable that these objects exist, or were removed.
	Sync(ctx context.Context, names []string) error
	// Open opens an object for reading, and returns its size.
	Open(ctx context.Context, name string) (r io.ReadCloser, size int64, err error)
	// List calls each for the objects whose names begin with dir and a slash, in order, and stops at its error.
	List(ctx context.Context, dir string, each func(name string, size int64) error) error
	// Remove removes an object.
	Remove(ctx context.Context, name string) error
	// Lock keeps out other callers of Lock until unlock: they get a *BusyError. held ends when the lock is lost.
	Lock(ctx context.Context) (held context.Context, unlock func(), err error)
	// Clean removes what interrupted calls of Create have left. The caller has the lock.
	Clean(ctx context.Context) error
}
