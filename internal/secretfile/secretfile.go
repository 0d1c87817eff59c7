package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/steledb/stele/internal/vfs"
)

// BytesMax bounds the size of a file that Read accepts. It exceeds the size of any key or bundle of
// certificates.
const BytesMax = 256 << 10

// modeBad are the permissions that a secret must not have: any for others, and write for the group.
// The group may have read permission, as services are often set up.
const modeBad = 0o027

// ExposedError means that other users can read or replace a secret.
type ExposedError struct {
	File string
	Mode os.FileMode
}

func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s has the mode %04o, which gives other users access to the secret in it: chmod 600 %s", e.File, e.Mode, e.File)
}

// TooLargeError means that a file is too large to be a secret.
type TooLargeError struct{ File string }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes: not a file of keys or certificates", e.File, BytesMax)
}

// Read returns the content of the file. Errors: *ExposedError, *TooLargeError, those of package os.
func Read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the open file, which may have been renamed since
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if mode := info.Mode().Perm(); mode&modeBad != 0 {
		return nil, &ExposedError{name, mode}
	}
	b, err := io.ReadAll(io.LimitReader(f, BytesMax+1))
	if err == nil && len(b) > BytesMax {
		err = &TooLargeError{name}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Write replaces the content of the file, which is accessible only to its owner. Content and name
// are durable when it returns nil. Missing directories are created with access for the owner only.
func Write(name string, content []byte) error { return write(vfs.OS(), name, content) }

func write(fsys vfs.FS, name string, content []byte) error {
	if err := makeDir(fsys, filepath.Dir(name)); err != nil {
		return err
	}
	return vfs.WriteFile(fsys, name, content)
}

// Remove deletes the file durably. It returns nil if the file does not exist.
func Remove(name string) error { return remove(vfs.OS(), name) }

func remove(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := fsys.SyncDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// makeDir creates a directory and its parents, all with durable names.
func makeDir(fsys vfs.FS, dir string) error {
	if _, _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	up := filepath.Dir(dir)
	if up != dir {
		if err := makeDir(fsys, up); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	return fsys.SyncDir(up)
}
