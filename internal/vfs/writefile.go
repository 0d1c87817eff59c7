package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
)

// ReadFile returns the content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	file, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	content := make([]byte, size)
	n, err := file.ReadAt(content, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return content[:n], nil
}

// WriteFile durably replaces a file, or creates it, with mode 0600 (VW1 of the package comment). It
// writes a temporary file in the same directory, whose name is that of the file after a dot and
// with a random suffix, and renames it. A crash may leave the temporary file. The directory must
// exist. Concurrent calls do not mix: the file has the content of one of them.
func WriteFile(fsys FS, name string, content []byte) error {
	temp, err := writeTemp(fsys, name, content)
	if err != nil {
		return err
	}
	if err := fsys.Rename(temp, name); err != nil {
		_ = fsys.Remove(temp) // the first error is returned
		return fmt.Errorf("rename temporary file: %w", err)
	}
	if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// writeTemp writes the content to a new file beside name and syncs it. After an error it removes the
// file, if it can.
func writeTemp(fsys FS, name string, content []byte) (temp string, err error) {
	file, temp, err := createTemp(fsys, name)
	if err != nil {
		return "", fmt.Errorf("create temporary file: %w", err)
	}
	if _, err = file.WriteAt(content, 0); err != nil {
		err = fmt.Errorf("write temporary file: %w", err)
	} else if err = file.Sync(); err != nil {
		err = fmt.Errorf("sync temporary file: %w", err)
	}
	if closeErr := file.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("close temporary file: %w", closeErr)
	}
	if err != nil {
		_ = fsys.Remove(temp) // the first error is returned
		return "", err
	}
	return temp, nil
}

// tempTries bounds the search for an unused name. Two random names are hardly ever equal.
const tempTries = 100

func createTemp(fsys FS, name string) (file File, temp string, err error) {
	dir, base := filepath.Split(name)
	for range tempTries {
		temp = filepath.Join(dir, "."+base+"."+strconv.FormatUint(rand.Uint64(), 36))
		if file, err = fsys.Create(temp); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return file, temp, err
}
