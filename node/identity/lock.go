package identity

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/steledb/stele/internal/vfs"
)

// lockFile is locked by the node's process, from before it changes anything until it ends.
const lockFile = "lock"

// Lock is LockFS on the operating system's file system.
func Lock(dataDirs []string) (unlock func(), err error) { return LockFS(vfs.OS(), dataDirs) }

// LockFS locks the data folders against other processes, and creates missing ones. The lock is held
// until unlock is called or the process ends. The error is vfs.ErrLocked if another process holds
// the lock of one.
func LockFS(fsys vfs.FS, dataDirs []string) (unlock func(), err error) {
	var held []io.Closer
	unlock = func() {
		for _, l := range held {
			_ = l.Close() // the end of the process would release it, too
		}
	}
	locker, ok := fsys.(vfs.Locker)
	if !ok {
		return nil, errors.New("lock data folders: not supported by this system")
	}
	for _, dir := range dataDirs {
		if err = fsys.MkdirAll(dir); err == nil {
			var l io.Closer
			if l, err = locker.Lock(filepath.Join(dir, lockFile)); err == nil {
				held = append(held, l)
				continue
			}
		}
		unlock()
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	return unlock, nil
}
