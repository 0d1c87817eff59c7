package roots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/tablet"
)

// Garbage must not be judged while a backup is made: it has recorded the files of some tablets, which compactions may replace, and no one
// can read yet which ones.
const (
	// makingMax is how long Mark waits for backups that are being made: longer than one is tried again (package backups).
	makingMax   = 15 * time.Minute
	makingPause = time.Second
)

// Backup returns a backup's record and its generation. The error is api.ErrNoBackup, or that of the lock service.
func (r *Reader) Backup(ctx context.Context, id string) (*backup.Record, uint64, error) {
	f, err := r.Meta.Current().Get(ctx, backup.Path(id))
	if errors.Is(err, metaapi.ErrNotFound) || errors.Is(err, metaapi.ErrBadPath) {
		return nil, 0, fmt.Errorf("backup %.80q: %w", id, api.ErrNoBackup)
	}
	if err != nil {
		return nil, 0, err
	}
	rec, err := backup.DecodeRecord(f.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", f.Path, err)
	}
	return rec, f.Generation, nil
}

// Backups calls each for all backups, in order of their ids, and stops at its error.
func (r *Reader) Backups(ctx context.Context, each func(id string, rec *backup.Record) error) error {
	ids, err := r.Catalog.List(ctx, backup.Dir)
	if err != nil {
		return err
	}
	for _, id := range ids {
		rec, _, err := r.Backup(ctx, id)
		if errors.Is(err, api.ErrNoBackup) {
			continue // deleted meanwhile
		}
		if err == nil {
			err = each(id, rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// backups calls each for the manifests of backups, and the files that they name. It returns the backups that are being made.
func (r *Reader) backups(ctx context.Context, each func(blobfs.ID, Use)) (making []string, err error) {
	err = r.Backups(ctx, func(id string, rec *backup.Record) error {
		switch rec.State {
		case backup.Making:
			making = append(making, id)
		case backup.Made:
			if planted.On(planted.BackupsUnmarked) {
				return nil
			}
			return r.manifest(ctx, rec.Manifest, Use{api.BlobOfBackup, id}, each)
		}
		return nil
	})
	return making, err
}

// manifest calls each for a manifest and the files that it names.
func (r *Reader) manifest(ctx context.Context, h blobfs.Handle, use Use, each func(blobfs.ID, Use)) error {
	if err := r.ManifestFiles(ctx, h, func(x blobfs.Handle) { each(x.ID, use) }); err != nil {
		return fmt.Errorf("%s %s: %w", use.Kind, use.Name, err)
	}
	return nil
}

// ManifestFiles calls each for the manifest of a backup and for the files that it names, some of them more than once.
func (r *Reader) ManifestFiles(ctx context.Context, h blobfs.Handle, each func(blobfs.Handle)) error {
	each(h)
	m, done, err := r.OpenManifest(ctx, h)
	if err != nil {
		return err
	}
	defer done()
	for i := range m.Tables {
		if err := m.Tablets(i, func(_ int64, t *tablet.Meta) error {
			for _, g := range t.Groups {
				for k := range g.Files {
					each(g.Files[k].Handle)
				}
			}
			return ctx.Err()
		}); err != nil {
			return err
		}
	}
	return nil
}

// OpenManifest opens the manifest of a backup. done ends its use.
func (r *Reader) OpenManifest(ctx context.Context, h blobfs.Handle) (m *backup.Manifest, done func(), err error) {
	return backup.Open(ctx, r.Store(), h)
}

// sources calls each for what tables are being restored from.
func (r *Reader) sources(ctx context.Context, each func(blobfs.ID, Use)) error {
	names, err := r.Catalog.Names(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		_, cut, _, err := namespace.ReadTable(ctx, r.Meta.Current(), name)
		if errors.Is(err, api.ErrNoTable) {
			continue
		}
		if err == nil && cut != nil && cut.From != nil {
			err = r.manifest(ctx, cut.From.Manifest, Use{api.BlobOfTable, name}, each)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Mark implements gc.Roots: it marks what garbage collection must keep. It reads all of METADATA, and waits while a backup is made.
func (r *Reader) Mark(ctx context.Context, mark func(blobfs.ID)) error {
	for start := time.Now(); ; {
		making, err := r.all(ctx, func(id blobfs.ID, _ Use) { mark(id) })
		if err != nil || len(making) == 0 {
			return err
		}
		if time.Since(start) > makingMax {
			return fmt.Errorf("backup %s is still being made", making[0])
		}
		if err := timing.Sleep(ctx, makingPause); err != nil {
			return err
		}
	}
}
