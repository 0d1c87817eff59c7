package secretfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// BytesMax bounds a file that Read takes: more than any key or bundle of
// certificates has.
const BytesMax = 256 << 10

// modeBad are the permissions that a secret must not have: any for others, and to
// write for the group, which may read it, as services are often set up.
const modeBad = 0o027

// ExposedError is about a secret that others can read or replace.
type ExposedError struct {
	File string
	Mode os.FileMode
}

func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s has the mode %04o, so other users can get at the secret in it: chmod 600 %s", e.File, e.Mode, e.File)
}

// TooLargeError is about a file that is no secret's.
type TooLargeError struct{ File string }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes: it is no file of keys or certificates", e.File, BytesMax)
}

// Read returns what the file holds. Errors: *ExposedError, *TooLargeError, those of
// package os.
func Read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the file that is open, whatever the name stands for now
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

// Write makes content that of the file, for its owner alone. It is durable when
// Write returns nil, under its name. Missing folders are made, for the owner alone.
func Write(name string, content []byte) error {
	dir := filepath.Dir(name)
	if err := makeDir(dir); err != nil {
		return err
	}
	// Not renameio.WriteFile, which would keep the permissions of the old file.
	f, err := renameio.NewPendingFile(name, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup() // does nothing once the file is in its place
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil { // fsync, rename
		return err
	}
	return SyncDir(dir)
}

// Remove deletes the file for good. One that is not there is no error.
func Remove(name string) error {
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return err
	}
	if _, err := os.Stat(filepath.Dir(name)); os.IsNotExist(err) {
		return nil
	}
	return SyncDir(filepath.Dir(name))
}

// makeDir makes a folder, and those above it, all with durable names.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	up := filepath.Dir(dir)
	if up != dir {
		if err := makeDir(up); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return SyncDir(up)
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close()
		return err
	}
	return d.Close()
}
