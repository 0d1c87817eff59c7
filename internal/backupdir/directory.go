package backupdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/steledb/stele/internal/vfs"
)

// directory is a Store in a directory of a file system.
type directory struct {
	fs   vfs.FS
	path string
}

const (
	tempDir  = "tmp"
	lockFile = "lock"
)

// Open opens a directory of backups, which Create has created. key is that of its backups, nil if they are not encrypted. Errors:
// ErrNoDirectory, those of the file system.
func Open(fsys vfs.FS, path string, key *Key) (*Dir, error) {
	names, err := fsys.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory of backups: %w", err)
	}
	if !slices.Contains(names, backupsDir) {
		return nil, fmt.Errorf("%s: %w", path, ErrNoDirectory)
	}
	return In(&directory{fsys, path}, key), nil
}

// Create is Open for a directory that is created if only its parent exists. A longer path is not created: a file server that is not mounted
// shall not become a directory of this host.
func Create(fsys vfs.FS, path string, key *Key) (*Dir, error) {
	if parent := filepath.Dir(filepath.Clean(path)); parent != path {
		if _, err := fsys.ReadDir(parent); err != nil {
			return nil, fmt.Errorf("create the directory of backups %s: %w", path, err)
		}
	}
	s := &directory{fsys, path}
	for _, name := range []string{objectsDir, backupsDir, tempDir} {
		if err := fsys.MkdirAll(s.Location(name)); err != nil {
			return nil, fmt.Errorf("create the directory of backups: %w", err)
		}
	}
	return In(s, key), errors.Join(fsys.SyncDir(filepath.Dir(filepath.Clean(path))), fsys.SyncDir(path))
}

// Location implements Store.
func (s *directory) Location(name string) string {
	return filepath.Join(s.path, filepath.FromSlash(name))
}

// Create implements Store.
func (s *directory) Create(_ context.Context, _ int64, absent bool, write func(io.Writer) (string, error)) error {
	temp := s.Location(path.Join(tempDir, strconv.FormatUint(rand.Uint64(), 36)))
	f, err := s.fs.Create(temp)
	if err != nil {
		return fmt.Errorf("create a file: %w", err)
	}
	name, err := write(io.NewOffsetWriter(f, 0))
	if err == nil {
		if err = f.Sync(); err != nil {
			err = fmt.Errorf("sync %s: %w", temp, err)
		}
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = s.giveName(temp, name, absent)
	}
	if err != nil {
		_ = s.fs.Remove(temp) // the first error is returned
	}
	return err
}

// giveName gives an object its name.
func (s *directory) giveName(temp, name string, absent bool) error {
	to := s.Location(name)
	if err := s.fs.MkdirAll(filepath.Dir(to)); err != nil {
		return fmt.Errorf("create the directory of %s: %w", to, err)
	}
	if absent { // the caller has the lock
		if _, _, err := s.fs.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, fmt.Errorf("%s: %w", to, fs.ErrExist))
		}
	}
	if err := s.fs.Rename(temp, to); err != nil {
		return fmt.Errorf("rename a file to %s: %w", to, err)
	}
	return nil
}

// Sync implements Store. Directories may be new: those above them are synced, too.
func (s *directory) Sync(_ context.Context, names []string) error {
	synced := map[string]bool{}
	for _, name := range names {
		for dir := path.Dir(name); dir != "." && !synced[dir]; dir = path.Dir(dir) {
			synced[dir] = true
			if err := s.fs.SyncDir(s.Location(dir)); err != nil {
				return fmt.Errorf("sync %s: %w", s.Location(dir), err)
			}
		}
	}
	return nil
}

// Open implements Store.
func (s *directory) Open(_ context.Context, name string) (io.ReadCloser, int64, error) {
	f, err := s.fs.OpenRead(s.Location(name))
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		_ = f.Close() // read only
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, 0, size), f}, size, nil
}

// List implements Store.
func (s *directory) List(ctx context.Context, dir string, each func(name string, size int64) error) error {
	names, err := s.fs.ReadDir(s.Location(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if strings.HasPrefix(name, ".") {
			continue
		}
		hex := dir == objectsDir && isHex(name, objectsPrefix)
		if name = path.Join(dir, name); hex {
			err = s.List(ctx, name, each)
		} else if size, _, statErr := s.fs.Stat(s.Location(name)); statErr == nil {
			err = each(name, size)
		} else if !errors.Is(statErr, fs.ErrNotExist) { // else it was removed meanwhile
			err = statErr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove implements Store.
func (s *directory) Remove(_ context.Context, name string) error {
	return s.fs.Remove(s.Location(name))
}

// Lock implements Store.
func (s *directory) Lock(ctx context.Context) (context.Context, func(), error) {
	l, ok := s.fs.(vfs.Locker)
	if !ok {
		return nil, nil, errors.New("the file system has no locks")
	}
	c, err := l.Lock(s.Location(lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, nil, &BusyError{Dir: s.path}
	}
	if err != nil {
		return nil, nil, err
	}
	return ctx, func() { _ = c.Close() }, nil
}

// Clean implements Store.
func (s *directory) Clean(context.Context) error {
	names, err := s.fs.ReadDir(s.Location(tempDir))
	for _, name := range names {
		if err := s.fs.Remove(s.Location(path.Join(tempDir, name))); err != nil {
			return fmt.Errorf("remove what an interrupted copy has left: %w", err)
		}
	}
	return err
}
