package backupdir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Freed is what a deletion has freed.
type Freed struct{ Objects, Bytes int64 }

// Delete deletes a backup or an unfinished copy, and the objects that no other one needs (BD3). A later deletion frees what an interrupted
// one has left. Errors: ErrNoBackup, *BusyError, *CorruptError and *FormatError of other backups, the file system's.
func (d *Dir) Delete(id string) (Freed, error) {
	if !validID(id) {
		return Freed{}, fmt.Errorf("backup %.80q in %s: %w", id, d.path, ErrNoBackup)
	}
	unlock, err := d.lock()
	if err != nil {
		return Freed{}, err
	}
	defer unlock.Close()
	needed, err := d.needed(id)
	if err != nil {
		return Freed{}, fmt.Errorf("nothing is deleted: what other backups need is not known: %w", err)
	}
	found := false
	for _, name := range []string{d.manifestName(id), d.partialName(id)} {
		err := d.fs.Remove(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Freed{}, err
		}
		found = found || err == nil
	}
	if !found {
		return Freed{}, fmt.Errorf("backup %s in %s: %w", id, d.path, ErrNoBackup)
	}
	if err := d.fs.SyncDir(d.name(backupsDir)); err != nil {
		return Freed{}, err
	}
	return d.sweep(needed)
}

// needed returns the hashes of the objects that backups and unfinished copies other than id need.
func (d *Dir) needed(id string) (map[string]bool, error) {
	needed := map[string]bool{}
	add := func(files []File) {
		for i := range files {
			needed[files[i].SHA256] = true
		}
	}
	all, err := d.List()
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
	unfinished, err := d.Unfinished()
	if err != nil {
		return nil, err
	}
	for _, other := range unfinished {
		if other == id {
			continue
		}
		files, err := d.readPartial(other)
		if err != nil {
			return nil, err
		}
		add(files)
	}
	return needed, nil
}

// sweep removes the objects that are not needed, and temporary files. The names are durable: those of the backups that needed them are gone.
func (d *Dir) sweep(needed map[string]bool) (freed Freed, err error) {
	dirs, err := d.fs.ReadDir(d.name(objectsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return freed, err
	}
	for _, dir := range dirs {
		sums, err := d.fs.ReadDir(d.name(objectsDir, dir))
		if err != nil || !isHex(dir, objectsPrefix) {
			continue // not of this format
		}
		for _, sum := range sums {
			if needed[sum] || !isHex(sum, sha256Digits) {
				continue
			}
			name := d.name(objectsDir, dir, sum)
			size, _, _ := d.fs.Stat(name) // for the report
			if err := d.fs.Remove(name); err != nil {
				return freed, err
			}
			freed.Objects++
			freed.Bytes += size
		}
	}
	return freed, errors.Join(d.clearTemp(), d.clearManifests())
}

// clearManifests removes temporary files of backups that were being listed when the process died.
func (d *Dir) clearManifests() error {
	names, err := d.fs.ReadDir(d.name(backupsDir))
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			err = errors.Join(err, d.fs.Remove(d.name(backupsDir, name)))
		}
	}
	return err
}
