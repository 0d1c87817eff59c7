package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

type osFS struct{}

// OS returns the file system of the operating system. It implements [Locker].
func OS() FS { return osFS{} }

func (osFS) Create(name string) (File, error) {
	return openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openFile(name, os.O_RDWR) }

func (osFS) OpenRead(name string) (File, error) { return openFile(name, os.O_RDONLY) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) removeLater(name string) (free func(pause func(took time.Duration)), err error) {
	file, err := openFile(name, os.O_RDWR)
	if err != nil { // a directory, missing, or another error that Remove returns
		return nil, os.Remove(name)
	}
	if err := os.Remove(name); err != nil {
		file.Close()
		return nil, err
	}
	size, err := file.Size()
	if err != nil || size <= removeStep {
		file.Close()
		return nil, nil
	}
	return func(pause func(time.Duration)) {
		defer file.Close() // frees what is left
		if !soleHandle(file.(*osFile).fd) {
			return
		}
		for size > 0 {
			began := time.Now()
			size = (size - 1) / removeStep * removeStep
			if file.Truncate(size) != nil {
				return
			}
			pause(time.Since(began))
		}
	}, nil
}

func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

func (osFS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (int64, time.Time, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return 0, time.Time{}, err
	}
	return fi.Size(), fi.ModTime(), nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (o osFS) FreeBytes(dir string) (int64, error) {
	d, err := o.Disk(dir)
	return d.FreeBytes, err
}

// Disk implements Disks.
func (osFS) Disk(dir string) (Disk, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Disk{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
		block := int64(st.Bsize)
		// Bavail excludes the space reserved for root.
		return Disk{ID: st.Fsid, TotalBytes: int64(st.Blocks) * block, FreeBytes: int64(st.Bavail) * block}, nil
	}
}

func (osFS) sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func (osFS) Lock(name string) (io.Closer, error) {
	l := flock.New(name, flock.SetPermissions(0o600))
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if !got {
		return nil, fmt.Errorf("lock %s: %w", filepath.Base(name), ErrLocked)
	}
	return l, nil
}

// osFile adds to os.File a Sync that does not allocate.
type osFile struct {
	*os.File
	fd int
	// mu prevents Close from freeing fd, which the kernel could then reuse for another file, while
	// a Sync uses it.
	mu     sync.RWMutex
	closed bool
}

func openFile(name string, flag int) (File, error) {
	for {
		f, err := os.OpenFile(name, flag, 0o600)
		if err != nil {
			return nil, err
		}
		file := &osFile{File: f, fd: int(f.Fd())}
		// The name may have been removed just before the open, and removeLater may be freeing the
		// space.
		var st unix.Stat_t
		if err := unix.Fstat(file.fd, &st); err != nil || st.Nlink > 0 {
			return file, nil
		}
		f.Close()
		if flag&os.O_CREATE != 0 {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		// A rename may have replaced the file: open the one that has the name now.
	}
}

func (f *osFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.File.Close()
}

func (f *osFile) Sync() error {
	return f.withFD("fdatasync", fdatasync)
}

func (f *osFile) StartSync(off, n int64) error {
	err := f.withFD("sync_file_range", func(fd int) error { return startSync(fd, off, n) })
	if errors.Is(err, errors.ErrUnsupported) { // ENOSYS, too
		return nil
	}
	return err
}

func (f *osFile) Preallocate(n int64) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	err = f.withFD("fallocate", func(fd int) error { return fallocate(fd, n) })
	if errors.Is(err, errors.ErrUnsupported) && size < n {
		return f.Truncate(n)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

func (f *osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// withFD runs a system call on the descriptor and retries it on EINTR.
func (f *osFile) withFD(op string, call func(fd int) error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return &fs.PathError{Op: op, Path: f.Name(), Err: os.ErrClosed}
	}
	for {
		err := call(f.fd)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return &fs.PathError{Op: op, Path: f.Name(), Err: err}
		}
	}
}
