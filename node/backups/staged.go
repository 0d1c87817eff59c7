package backups

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/node/roots"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

const (
	// stagedFor is how long staged blobs are kept: longer than the import of any backup takes. At 100 MB/s, 48 h are 17 TB.
	stagedFor = 48 * time.Hour
	// stagedEvery is how often the master looks for those that have expired. It reads the names of all stored files.
	stagedEvery = 10 * time.Minute
)

// expireStaged deletes blobs that were staged for an import whose client has neither imported nor deleted them.
func (s *Service) expireStaged(ctx context.Context) error {
	keep, now := cmp.Or(s.StagedFor, stagedFor), time.Now()
	if now.Sub(s.stagedSeen) < min(stagedEvery, keep) {
		return nil
	}
	deleted := 0
	err := s.Roots.StagedFiles(ctx, func(f *roots.StoredFile, gen uint64) error {
		if now.Sub(f.Created) < keep {
			return nil
		}
		err := s.own(ctx, func(ctx context.Context) error { // not while an import names it (BU5)
			return s.Catalog.Remove(ctx, roots.StoredPath(f.Handle.ID), gen)
		})
		if errors.Is(err, metaapi.ErrNotFound) || errors.Is(err, metaapi.ErrGeneration) {
			return nil // its client lives
		}
		if err == nil {
			deleted++
		}
		return err
	})
	if deleted > 0 {
		s.Log.Info("expired staged blobs deleted", "removed", deleted)
	}
	if err == nil {
		s.stagedSeen = now
	}
	return err
}
