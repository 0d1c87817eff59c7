package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// FS is a tree of directories and files. Names are paths in the form of package filepath. Errors
// satisfy errors.Is with fs.ErrNotExist and fs.ErrExist where they apply; see also [IsDiskFull].
type FS interface {
	// Create creates a file that must not exist and opens it for reading and writing, with mode
	// 0600. It returns fs.ErrExist if the name exists.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)
	// Remove removes a file or an empty directory. An open file stays readable through its handles.
	Remove(name string) error
	// Rename moves a file and replaces one with the new name, or moves a directory to an
	// unused name. It is atomic, and durable only after SyncDir of both directories.
	Rename(oldName, newName string) error
	// MkdirAll creates a directory and its parents, with mode 0700.
	MkdirAll(dir string) error
	// ReadDir returns the names in a directory, sorted, without the path.
	ReadDir(dir string) ([]string, error)
	// Stat returns a file's size in bytes and its modification time.
	Stat(name string) (size int64, mod time.Time, err error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// FreeBytes returns the free space under dir in bytes.
	FreeBytes(dir string) (int64, error)
}

// File is an open file. It has no file position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the bytes written so far durable, and the size if it changed (fdatasync). After an
	// error, the state of all bytes written since the last success is unknown, and a later success
	// proves nothing.
	Sync() error
	// StartSync starts writing n bytes at off to disk without waiting, so that a later Sync has
	// less to do. It makes nothing durable. After an error, the state of the bytes is unknown, as
	// after a failed Sync. It does nothing on systems without such a call.
	StartSync(off, n int64) error
	// Truncate sets the size. Bytes beyond the old size read as zeros.
	Truncate(size int64) error
	// Size returns the size in bytes.
	Size() (int64, error)
	// Preallocate reserves space for the first n bytes and makes the file at least that long, so
	// that later writes there cannot fail for lack of space. On file systems without reservation it
	// changes only the size.
	Preallocate(n int64) error
}

// RemoveLater removes a file like FS.Remove, but may defer freeing its space. If the file is large,
// has no other name and is not open elsewhere, and the file system supports it, the space is freed
// only by free. The caller must call free once. It frees 1 MiB at a time and calls pause
// after each step with the step's duration. Freeing 16 MiB at once delays the syncs of all other
// files by 3 to 16 ms, on ext4 with discard. free is nil if there is nothing to do. After a
// crash the file either exists in full or is removed and all its space is free.
func RemoveLater(fsys FS, name string) (free func(pause func(took time.Duration)), err error) {
	if r, ok := fsys.(interface {
		removeLater(name string) (func(pause func(time.Duration)), error)
	}); ok {
		return r.removeLater(name)
	}
	return nil, fsys.Remove(name)
}

// removeStep is the space freed in one step, in bytes.
const removeStep = 1 << 20

// Locker is implemented by file systems that can exclude other processes.
type Locker interface {
	// Lock locks the file name, creating it if needed, until the result is closed or the process
	// ends. It returns ErrLocked if the file is locked by another holder.
	Lock(name string) (io.Closer, error)
}

// Disk is the disk that a directory is on.
type Disk struct {
	// ID is equal for directories on one disk. It is comparable.
	ID any
	// TotalBytes is the size of the disk, and FreeBytes its free space.
	TotalBytes, FreeBytes int64
}

// Disks is implemented by file systems that know the disks of their directories.
type Disks interface {
	// Disk returns the disk of dir.
	Disk(dir string) (Disk, error)
}

// DiskOf returns the disk of a directory. If fsys does not know it, the directory counts as a disk of
// its own, with the size of its free space.
func DiskOf(fsys FS, dir string) (Disk, error) {
	if d, ok := fsys.(Disks); ok {
		return d.Disk(dir)
	}
	free, err := fsys.FreeBytes(dir)
	return Disk{ID: dir, TotalBytes: free, FreeBytes: free}, err
}

// SameFile reports whether two existing names are one file or directory: equal names, or on the
// operating system's file system a link, or another mount.
func SameFile(fsys FS, a, b string) bool {
	if s, ok := fsys.(interface{ sameFile(a, b string) bool }); ok {
		return s.sameFile(a, b)
	}
	_, _, err := fsys.Stat(a)
	return err == nil && filepath.Clean(a) == filepath.Clean(b)
}

// Exists reports whether a directory has that name, even as a symbolic link to nothing.
func Exists(fsys FS, name string) (bool, error) {
	names, err := fsys.ReadDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.Contains(names, filepath.Base(name)), err
}

// RemoveAll removes a file, or a directory and all below it. It returns nil if there is nothing of
// that name. It follows no symbolic link.
func RemoveAll(fsys FS, name string) error {
	err := fsys.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names, notDir := fsys.ReadDir(name)
	if notDir != nil {
		return err
	}
	for _, child := range names {
		if err := RemoveAll(fsys, filepath.Join(name, child)); err != nil {
			return err
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ErrLocked means that the lock file is locked by another holder.
var ErrLocked = errors.New("in use by another process")

// IsDiskFull reports whether err means that the disk or the quota is full.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
