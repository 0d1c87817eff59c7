package backupdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// Freed is what a deletion has freed.
type Freed struct{ Objects, Bytes int64 }

// Delete deletes a backup or an unfinished copy, and the objects that no other one needs (BD3). A later deletion frees what an interrupted
// one has left. Errors: ErrNoBackup, *BusyError, *CorruptError and *FormatError of other backups, the store's.
func (d *Dir) Delete(ctx context.Context, id string) (Freed, error) {
	if !validID(id) {
		return Freed{}, d.noBackup(id)
	}
	ctx, unlock, err := d.store.Lock(ctx)
	if err != nil {
		return Freed{}, err
	}
	defer unlock()
	freed, err := d.deleteLocked(ctx, id)
	return freed, lockError(ctx, err)
}

// deleteLocked is Delete while the lock is held, as long as ctx lasts.
func (d *Dir) deleteLocked(ctx context.Context, id string) (Freed, error) {
	needed, err := d.needed(ctx, id)
	if err != nil {
		return Freed{}, fmt.Errorf("nothing is deleted: what other backups need is not known: %w", err)
	}
	found, err := d.unlist(ctx, id)
	if err != nil {
		return Freed{}, err
	}
	if !found {
		return Freed{}, d.noBackup(id)
	}
	return d.sweep(ctx, needed)
}

// unlist removes the objects that name a backup. found is false if there are none.
func (d *Dir) unlist(ctx context.Context, id string) (found bool, err error) {
	err = d.store.List(ctx, backupsDir, func(name string, _ int64) error {
		found = found || name == manifestName(id)
		return nil
	})
	if err != nil {
		return false, err
	}
	if found {
		if err := d.store.Remove(ctx, manifestName(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	records, err := d.removeRecords(ctx, id)
	if err != nil {
		return false, err
	}
	return found || records > 0, d.store.Sync(ctx, []string{manifestName(id)})
}

// needed returns the hashes of the objects that backups and unfinished copies other than id need.
func (d *Dir) needed(ctx context.Context, id string) (map[string]bool, error) {
	needed := map[string]bool{}
	add := func(files []File) {
		for i := range files {
			needed[files[i].SHA256] = true
		}
	}
	all, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		switch {
		case e.ID == id:
		case e.Err != nil:
			return nil, e.Err
		default:
			add(e.Backup.Files)
		}
	}
	unfinished, err := d.Unfinished(ctx)
	if err != nil {
		return nil, err
	}
	for _, other := range unfinished {
		if other == id {
			continue
		}
		files, err := d.readPartial(ctx, other)
		if err != nil {
			return nil, err
		}
		add(files)
	}
	return needed, nil
}

// sweep removes the objects that are not needed, and temporary files. The names are durable: those of the backups that needed them are gone.
func (d *Dir) sweep(ctx context.Context, needed map[string]bool) (freed Freed, err error) {
	sizes := map[string]int64{}
	if err := d.objects(ctx, func(sum string, size int64) {
		if !needed[sum] {
			sizes[sum] = size
		}
	}); err != nil {
		return freed, err
	}
	for sum, size := range sizes {
		if err := d.store.Remove(ctx, objectName(sum)); err != nil {
			return freed, err
		}
		freed.Objects++
		freed.Bytes += size
	}
	return freed, d.store.Clean(ctx)
}

// objects calls each for the hashes and stored sizes of all objects. Others are not of this format.
func (d *Dir) objects(ctx context.Context, each func(sum string, size int64)) error {
	return d.store.List(ctx, objectsDir, func(name string, size int64) error {
		if sum := path.Base(name); isHex(sum, sha256Digits) && name == objectName(sum) {
			each(sum, size)
		}
		return nil
	})
}
