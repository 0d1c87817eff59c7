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

// Files are the files of a file system that hold secrets.
type Files struct{ fs vfs.FS }

// On returns the files of a file system.
func On(fsys vfs.FS) Files { return Files{fsys} }

// Read reads a file of the operating system, as Files.Read.
func Read(name string) ([]byte, error) { return On(vfs.OS()).Read(name) }

// Write writes a file of the operating system, as Files.Write.
func Write(name string, content []byte) error { return On(vfs.OS()).Write(name, content) }

// Remove deletes a file of the operating system, as Files.Remove.
func Remove(name string) error { return On(vfs.OS()).Remove(name) }

// Read returns the content of the file. Errors: *ExposedError, *TooLargeError, those of the file
// system.
func (f Files) Read(name string) ([]byte, error) {
	file, err := f.fs.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := checkMode(file, name); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(file, 0, BytesMax+1))
	if err == nil && len(b) > BytesMax {
		err = &TooLargeError{name}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// checkMode returns an error if others can read or replace an open file, which may have been renamed
// since. Only files of the operating system have permissions.
func checkMode(file vfs.File, name string) error {
	f, ok := file.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name)
	}
	if mode := info.Mode().Perm(); mode&modeBad != 0 {
		return &ExposedError{name, mode}
	}
	return nil
}

// Write replaces the content of the file, which is accessible only to its owner. Content and name
// are durable when it returns nil. Missing directories are created with access for the owner only.
func (f Files) Write(name string, content []byte) error {
	if err := vfs.MakeDir(f.fs, filepath.Dir(name)); err != nil {
		return err
	}
	return vfs.WriteFile(f.fs, name, content)
}

// Remove deletes the file durably. It returns nil if the file does not exist.
func (f Files) Remove(name string) error {
	if err := f.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := f.fs.SyncDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
