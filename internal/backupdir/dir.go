package backupdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/time/rate"
)

// Dir is a directory of backups, or a bucket of them. It is safe for concurrent use, also by several processes.
type Dir struct {
	store       Store
	key         *Key          // nil: not encrypted
	limit       *rate.Limiter // of bytes that are copied, verified or imported; nil: none
	recordBytes int64         // of objects that a copy stores between records of its progress
}

const (
	objectsDir    = "objects"
	backupsDir    = "backups"
	manifestExt   = ".json"
	partialExt    = ".partial."
	objectsPrefix = 2 // digits of a hash that name its directory
)

// In returns the backups in a store. key is that of its backups, nil if they are not encrypted.
func In(s Store, key *Key) *Dir { return &Dir{store: s, key: key, recordBytes: recordBytesMin} }

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

func manifestName(id string) string { return path.Join(backupsDir, id+manifestExt) }
func objectName(sum string) string  { return path.Join(objectsDir, sum[:objectsPrefix], sum) }

// ids returns the ids of the backups that have objects whose names continue with ext, in order.
func (d *Dir) ids(ctx context.Context, ext string) (ids []string, err error) {
	err = d.store.List(ctx, backupsDir, func(name string, _ int64) error {
		id, rest, ok := strings.Cut(path.Base(name), ext)
		if ok && validID(id) && (ext != manifestExt || rest == "") && !slices.Contains(ids[max(0, len(ids)-1):], id) {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// Entry is a backup that is listed. If it cannot be read, Err is why.
type Entry struct {
	ID     string
	Backup *Backup
	Err    error
}

// List returns the backups in order of their ids, and thus of time.
func (d *Dir) List(ctx context.Context) ([]Entry, error) {
	ids, err := d.ids(ctx, manifestExt)
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, id := range ids {
		b, err := d.Find(ctx, id)
		if !errors.Is(err, ErrNoBackup) { // deleted meanwhile
			all = append(all, Entry{id, b, err})
		}
	}
	return all, nil
}

// Unfinished returns the ids of the copies that were interrupted, or are at work.
func (d *Dir) Unfinished(ctx context.Context) ([]string, error) { return d.ids(ctx, partialExt) }

// Find returns a backup. Errors: ErrNoBackup, *CorruptError, *FormatError, *KeyError, the store's.
func (d *Dir) Find(ctx context.Context, id string) (*Backup, error) {
	if !validID(id) {
		return nil, d.noBackup(id)
	}
	raw, err := d.readObject(ctx, manifestName(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, d.noBackup(id)
	}
	if err != nil {
		return nil, err
	}
	return decode(raw, id, d.store.Location(manifestName(id)), d.key)
}

func (d *Dir) noBackup(id string) error {
	return fmt.Errorf("backup %.80q in %s: %w", id, d.store.Location(""), ErrNoBackup)
}

// readObject reads ID.json or ID.partial.N.
func (d *Dir) readObject(ctx context.Context, name string) ([]byte, error) {
	r, size, err := d.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > manifestBytesMax {
		return nil, &CorruptError{d.store.Location(name), fmt.Sprintf("it has %d bytes, at most %d", size, int64(manifestBytesMax))}
	}
	p := make([]byte, size)
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.store.Location(name), err)
	}
	return p, nil
}

// put stores an object with that name.
func (d *Dir) put(ctx context.Context, name string, absent bool, raw []byte) error {
	return d.store.Create(ctx, int64(len(raw)), absent, func(w io.Writer) (string, error) {
		_, err := w.Write(raw)
		return name, err
	})
}
