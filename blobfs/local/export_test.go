package local

import (
	"io/fs"
	"strings"

	"github.com/steledb/stele/internal/vfs"
)

// OpenFile opens a file of the store as the store reads it.
func (s *Store) OpenFile(name string) (vfs.File, error) {
	for _, f := range s.folders {
		if strings.HasPrefix(name, f.path) {
			return f.fs.OpenRead(name)
		}
	}
	return nil, fs.ErrNotExist
}
