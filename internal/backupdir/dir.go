package backupdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/time/rate"

	"github.com/steledb/stele/internal/vfs"
)

// Dir is a directory of backups. It is safe for concurrent use, also by several processes.
type Dir struct {
	fs    vfs.FS
	path  string
	key   *Key          // nil: not encrypted
	limit *rate.Limiter // of bytes that are copied, verified or imported; nil: none
}

const (
	objectsDir    = "objects"
	backupsDir    = "backups"
	tempDir       = "tmp"
	lockFile      = "lock"
	manifestExt   = ".json"
	partialExt    = ".partial"
	objectsPrefix = 2 // digits of a hash that name its directory
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
	return &Dir{fs: fsys, path: path, key: key}, nil
}

// Create is Open for a directory that is created if only its parent exists. A longer path is not created: a file server that is not mounted
// shall not become a directory of this host.
func Create(fsys vfs.FS, path string, key *Key) (*Dir, error) {
	if parent := filepath.Dir(filepath.Clean(path)); parent != path {
		if _, err := fsys.ReadDir(parent); err != nil {
			return nil, fmt.Errorf("create the directory of backups %s: %w", path, err)
		}
	}
	d := &Dir{fs: fsys, path: path, key: key}
	for _, name := range []string{objectsDir, backupsDir, tempDir} {
		if err := fsys.MkdirAll(d.name(name)); err != nil {
			return nil, fmt.Errorf("create the directory of backups: %w", err)
		}
	}
	return d, errors.Join(fsys.SyncDir(filepath.Dir(filepath.Clean(path))), fsys.SyncDir(path))
}

// Limit bounds what later calls of Copy, Verify and Import read, in bytes a second; 0 means no bound. It must not be called during one.
func (d *Dir) Limit(bytesPerSecond int64) {
	if d.limit = nil; bytesPerSecond > 0 {
		d.limit = rate.NewLimiter(rate.Limit(bytesPerSecond), int(min(bytesPerSecond, pieceBytes)))
	}
}

// pace waits until n bytes may be read. The error is ctx's.
func (d *Dir) pace(ctx context.Context, n int) error {
	for d.limit != nil && n > 0 {
		step := min(n, d.limit.Burst())
		if err := d.limit.WaitN(ctx, step); err != nil {
			return err
		}
		n -= step
	}
	return ctx.Err()
}

func (d *Dir) name(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

func (d *Dir) manifestName(id string) string { return d.name(backupsDir, id+manifestExt) }
func (d *Dir) partialName(id string) string  { return d.name(backupsDir, id+partialExt) }
func (d *Dir) objectName(sum string) string {
	return d.name(objectsDir, sum[:objectsPrefix], sum)
}

// lock keeps other copies and deletions out of the directory. The error is a *BusyError, or the file system's.
func (d *Dir) lock() (io.Closer, error) {
	l, ok := d.fs.(vfs.Locker)
	if !ok {
		return nil, errors.New("the file system has no locks")
	}
	c, err := l.Lock(d.name(lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, &BusyError{d.path}
	}
	return c, err
}

// ids returns the ids of the files in backups with that extension, in order.
func (d *Dir) ids(ext string) ([]string, error) {
	names, err := d.fs.ReadDir(d.name(backupsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, ext); ok && validID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Entry is a backup that is listed. If it cannot be read, Err is why.
type Entry struct {
	ID     string
	Backup *Backup
	Err    error
}

// List returns the backups of the directory in order of their ids, and thus of time.
func (d *Dir) List() ([]Entry, error) {
	ids, err := d.ids(manifestExt)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, id := range ids {
		b, err := d.Find(id)
		if !errors.Is(err, ErrNoBackup) { // deleted meanwhile
			all = append(all, Entry{id, b, err})
		}
	}
	return all, nil
}

// Unfinished returns the ids of the copies that were interrupted, or are at work.
func (d *Dir) Unfinished() ([]string, error) { return d.ids(partialExt) }

// Find returns a backup. Errors: ErrNoBackup, *CorruptError, *FormatError, *KeyError, the file system's.
func (d *Dir) Find(id string) (*Backup, error) {
	if !validID(id) {
		return nil, fmt.Errorf("backup %.80q in %s: %w", id, d.path, ErrNoBackup)
	}
	name := d.manifestName(id)
	raw, err := d.readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("backup %s in %s: %w", id, d.path, ErrNoBackup)
	}
	if err != nil {
		return nil, err
	}
	return decode(raw, id, name, d.key)
}

// readFile reads ID.json or ID.partial.
func (d *Dir) readFile(name string) ([]byte, error) {
	f, err := d.fs.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > manifestBytesMax {
		return nil, &CorruptError{name, fmt.Sprintf("it has %d bytes, at most %d", size, int64(manifestBytesMax))}
	}
	p := make([]byte, size)
	n, err := f.ReadAt(p, 0)
	if n == len(p) {
		err = nil
	}
	return p, err
}
