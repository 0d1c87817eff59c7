package vfs

import (
	"errors"
	"io"
	"syscall"
	"time"
)

// FS is a tree of folders and files. Names are paths as package filepath
// writes them. Errors satisfy errors.Is with fs.ErrNotExist and fs.ErrExist
// where they apply; see also [IsDiskFull].
type FS interface {
	// Create makes a file that does not exist yet and opens it for reading
	// and writing, with mode 0600. fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)
	// Remove removes a file or an empty folder. A file that is open stays
	// readable through its handles.
	Remove(name string) error
	// Rename moves a file, replacing the one that has the new name. It is
	// atomic, and durable only after SyncDir of the folders concerned.
	Rename(oldName, newName string) error
	// MkdirAll makes a folder and those above it, with mode 0700.
	MkdirAll(dir string) error
	// ReadDir returns the names in a folder, sorted, without the path.
	ReadDir(dir string) ([]string, error)
	// Stat returns a file's size in bytes and the time of its last change.
	Stat(name string) (size int64, mod time.Time, err error)
	// SyncDir makes the names of a folder durable.
	SyncDir(dir string) error
	// FreeBytes returns the bytes that may still be written under dir.
	FreeBytes(dir string) (int64, error)
}

// File is an open file. There is no file position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the bytes written so far durable, and the size if it
	// changed (fdatasync). When it fails, nothing is known of any byte
	// written since the last success, and trying again proves nothing.
	Sync() error
	// StartSync has n bytes at off begin their way to disk and does not wait for
	// them, so that a later Sync has less to do. It makes nothing durable. After an
	// error the same is known as after a failed Sync: nothing. Where the system
	// has no such call it does nothing.
	StartSync(off, n int64) error
	// Truncate sets the size; a file that grows reads as zeros there.
	Truncate(size int64) error
	// Size returns the size in bytes.
	Size() (int64, error)
	// Preallocate reserves room for the first n bytes and makes the file at
	// least that long, so that later writes there cannot find the disk full.
	// Where the file system cannot reserve, only the size changes.
	Preallocate(n int64) error
}

// RemoveLater removes a file as fs.Remove does. If the file system can, it keeps the room of a large one that is open nowhere else and
// has no other name until giveBack is called, once, which gives it back a MiB at a time and calls rest after each with how long that took. To give back
// 16 MiB at once holds up the syncs of all other files for 3 to 16 ms, on ext4 with discard. GiveBack is nil if there is nothing to do. A crash
// finds the file whole or not at all, and gives back all its room.
func RemoveLater(fs FS, name string) (giveBack func(rest func(took time.Duration)), err error) {
	if r, ok := fs.(interface {
		removeLater(name string) (func(rest func(time.Duration)), error)
	}); ok {
		return r.removeLater(name)
	}
	return nil, fs.Remove(name)
}

// removePart is how much room is given back at a time.
const removePart = 1 << 20

// Locker is implemented by file systems that can keep other processes out.
type Locker interface {
	// Lock takes the lock file name, making it if need be, until the result is
	// closed or the process ends. ErrLocked if someone else has it.
	Lock(name string) (io.Closer, error)
}

// ErrLocked means that another holder has the lock file.
var ErrLocked = errors.New("in use by another process")

// IsDiskFull tells whether err means that there was no room: the disk or the
// quota is full, as opposed to broken.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
