package backupdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
)

// Source is the cluster that has a backup: client.Backups.
type Source interface {
	Files(ctx context.Context, id string, each func(*client.BackupFile) error) error
	Read(ctx context.Context, id string, f *client.BackupFile, p []byte, off int64) (n int, err error)
}

// workers is the number of files that are copied at once. A node accepts 8 uploads of a user.
const workers = 4

// Progress counts the bytes of a copy, a verification or an import.
type Progress struct {
	total, done, moved atomic.Int64
}

// Total returns the bytes of all files; 0 until it is known.
func (p *Progress) Total() int64 { return p.total.Load() }

// Done returns the bytes of those that are done, including those that the directory had.
func (p *Progress) Done() int64 { return p.done.Load() }

// Moved returns the bytes that were read.
func (p *Progress) Moved() int64 { return p.moved.Load() }

func (p *Progress) add(n int64) {
	p.done.Add(n)
	p.moved.Add(n)
}

// copying is a copy at work.
type copying struct {
	d     *Dir
	src   Source
	id    string
	has   map[string]int64 // sizes of stored objects, by hash
	known map[File]string  // hashes of files that the directory may have, by the other fields
	saved map[File]bool    // files that the record of this copy has
	done  *partial
	p     *Progress
}

// Copy copies a backup of a cluster, which is made, with its access if that is not nil, and returns it as it is listed. It continues an interrupted copy, and completes a
// listed backup whose objects are missing. Errors: *BusyError, *KeyError if the
// directory has backups by another key, the source's, the file system's, ctx's. After an error the copy can be
// continued.
func (d *Dir) Copy(ctx context.Context, src Source, from *client.Backup, access *Access, p *Progress) (*Backup, error) {
	if !validID(from.ID) {
		return nil, fmt.Errorf("the id %.80q of the backup cannot be the name of a file", from.ID)
	}
	ctx, unlock, err := d.store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	b, err := d.copyLocked(ctx, src, from, access, p)
	return b, lockError(ctx, err)
}

// copyLocked is Copy while the lock is held, as long as ctx lasts.
func (d *Dir) copyLocked(ctx context.Context, src Source, from *client.Backup, access *Access, p *Progress) (_ *Backup, err error) {
	if err := d.store.Clean(ctx); err != nil {
		return nil, err
	}
	c := &copying{d: d, src: src, id: from.ID, has: map[string]int64{}, known: map[File]string{}, saved: map[File]bool{}, p: p}
	if err := c.learn(ctx); err != nil {
		return nil, err
	}
	if c.done, err = d.openPartial(ctx, from.ID); err != nil {
		return nil, err
	}
	defer c.done.close(ctx)
	b := &Backup{ID: from.ID, Created: time.UnixMilli(from.CreatedMS).UTC(), Tables: from.Tables, Tablets: from.Tablets, Bytes: from.Bytes, Access: access}
	old, err := d.Find(ctx, from.ID)
	if err == nil && old.Access != nil { // it is of that time
		b.Access = old.Access
	}
	absent := errors.Is(err, ErrNoBackup)
	if b.Files, err = c.files(ctx); err != nil {
		return nil, err
	}
	if err := d.list(ctx, b, absent); err != nil {
		return nil, err
	}
	c.done.remove(ctx)
	return b, nil
}

// learn finds the files that the directory may have. Backups that cannot be read count for nothing.
func (c *copying) learn(ctx context.Context) error {
	if err := c.d.objects(ctx, func(sum string, size int64) { c.has[sum] = size }); err != nil {
		return err
	}
	all, err := c.d.List(ctx)
	if err != nil {
		return err
	}
	if err := checkKey(all); err != nil {
		return err
	}
	for _, e := range all {
		if e.Err == nil {
			c.add(e.Backup.Files)
		}
	}
	stored, err := c.d.readPartial(ctx, c.id)
	c.add(stored)
	for _, x := range stored {
		c.saved[x] = true
	}
	return err
}

// CheckKey returns a *KeyError if the directory has backups by another key: Copy adds none to such a directory.
func (d *Dir) CheckKey(ctx context.Context) error {
	all, err := d.List(ctx)
	if err != nil {
		return err
	}
	return checkKey(all)
}

// checkKey is CheckKey for the backups of a directory. A deletion could not know what backups by different keys need.
func checkKey(all []Entry) error {
	for _, e := range all {
		var other *KeyError
		if errors.As(e.Err, &other) {
			return fmt.Errorf("backups by different keys cannot share a directory: %w", e.Err)
		}
	}
	return nil
}

func (c *copying) add(files []File) {
	for _, x := range files {
		c.known[File{ID: x.ID, Bytes: x.Bytes, Check: x.Check}] = x.SHA256
	}
}

// files copies the files that the directory does not have, and returns all.
func (c *copying) files(ctx context.Context) ([]File, error) {
	var all []File
	var missing []client.BackupFile
	var at []int // of the missing ones in all
	err := c.src.Files(ctx, c.id, func(x *client.BackupFile) error {
		f := File{ID: x.ID, Bytes: x.Bytes, Check: x.Check}
		if err := f.check(); err != nil {
			return err
		}
		c.p.total.Add(x.Bytes)
		if sum := c.known[f]; sum != "" && c.stored(sum, f.Bytes) {
			f.SHA256 = sum
			if err := c.reuse(ctx, &f); err != nil {
				return err
			}
		} else {
			missing, at = append(missing, *x), append(at, len(all))
		}
		if all = append(all, f); len(all) > filesMax {
			return fmt.Errorf("the backup has more than %d files: back up fewer tables at once", filesMax)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range missing {
		g.Go(func() error { return c.file(ctx, &missing[i], &all[at[i]]) })
	}
	return all, g.Wait()
}

// stored reports whether an object is stored, by its size.
func (c *copying) stored(sum string, size int64) bool {
	n, ok := c.has[sum]
	return ok && n == c.d.key.storedBytes(size)
}

// reuse records a file that the directory has, so that no deletion of another backup removes it (BD3).
func (c *copying) reuse(ctx context.Context, f *File) error {
	c.p.done.Add(f.Bytes)
	if c.saved[*f] {
		return nil
	}
	return c.done.add(ctx, f)
}

// file copies a file.
func (c *copying) file(ctx context.Context, from *client.BackupFile, to *File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	sum, err := c.d.putObject(ctx, from.Bytes, func(p []byte, off int64) (int, error) {
		if err := c.d.pace(ctx, len(p)); err != nil {
			return 0, err
		}
		n, err := c.src.Read(ctx, c.id, from, p, off)
		c.p.add(int64(n))
		return n, err
	})
	if err != nil {
		return fmt.Errorf("copy file %s: %w", from.ID, err)
	}
	to.SHA256 = sum
	return c.done.add(ctx, to)
}

// list makes the objects of a backup durable, and then lists it (BD1). If it was absent, one that is listed meanwhile is a *BusyError.
func (d *Dir) list(ctx context.Context, b *Backup, absent bool) error {
	names := make([]string, len(b.Files))
	for i := range b.Files {
		names[i] = objectName(b.Files[i].SHA256)
	}
	if err := d.store.Sync(ctx, names); err != nil {
		return fmt.Errorf("sync the objects: %w", err)
	}
	b.Copied = time.Now().UTC().Truncate(time.Second)
	raw, err := b.encode(d.key)
	if err != nil {
		return err
	}
	if err = d.put(ctx, manifestName(b.ID), absent, raw); errors.Is(err, fs.ErrExist) {
		return &BusyError{Dir: d.store.Location("")}
	}
	if err == nil {
		err = d.store.Sync(ctx, []string{manifestName(b.ID)})
	}
	if err != nil {
		return fmt.Errorf("list the backup: %w", err)
	}
	return nil
}
