package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// MakeDir durably creates a directory and its parents. It makes the names of those that exist durable,
// too, since a process may have been killed after it created them. A parent that may not be read is
// left as it is: an administrator has created what is in it.
func MakeDir(fsys FS, dir string) error {
	_, _, err := fsys.Stat(dir)
	exists := err == nil
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("create directory %s: %w", dir, err)
	}
	for name := dir; name != filepath.Dir(name); name = filepath.Dir(name) {
		err := fsys.SyncDir(filepath.Dir(name))
		if errors.Is(err, fs.ErrPermission) && (exists || name != dir) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("sync the parent of directory %s: %w", name, err)
		}
	}
	return nil
}
