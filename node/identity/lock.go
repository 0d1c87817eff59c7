package identity

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/steledb/stele/internal/vfs"
)

// lockFile is locked by the process that is the node, from before it changes anything until it ends.
const lockFile = "lock"

// Lock keeps other processes off the data folders, which it makes if need be, until the result is
// called or the process ends. The error is vfs.ErrLocked if another process has one.
func Lock(dataDirs []string) (unlock func(), err error) {
	var held []io.Closer
	unlock = func() {
		for _, l := range held {
			_ = l.Close() // the process's end would do it, too
		}
	}
	locker, ok := vfs.OS().(vfs.Locker)
	if !ok {
		return nil, errors.New("this system has no lock files")
	}
	for _, dir := range dataDirs {
		if err = os.MkdirAll(dir, 0o700); err == nil {
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
