package tablet

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/steledb/stele/internal/planted"
)

// Tablet is one range of rows of one table, loaded on this server.
type Tablet struct {
	id           uint64
	table        uint64 // id of the table
	server       *Server
	highPriority bool   // see Load.HighPriority
	start        []byte // start < row <= end; empty is no bound
	end          []byte
	schema       atomic.Pointer[schema]

	views  viewSet
	meta   metadataRow
	fence  writeFence
	writer memWriter
	minor  minorCompactor
	merge  mergeCompactor
	load   load
}

// holds reports whether row is in the tablet's range.
func (t *Tablet) holds(row []byte) bool {
	return inRange(t.start, t.end, row)
}

// errUnloaded ends a compaction whose tablet was unloaded meanwhile.
var errUnloaded = errors.New("tablet was unloaded")

// unload takes the tablet out of service. Later reads fail with api.ErrNotServing, and compactions
// end. If drop is set, its files are deleted when the last read ends. It runs on the applier.
func (t *Tablet) unload(drop bool) {
	t.writer.unloaded = true
	v := t.views.take(drop)
	if v == nil {
		return
	}
	if drop {
		for _, g := range v.groups {
			for _, f := range g.files {
				f.deleteLater()
			}
		}
	}
	for _, m := range append(v.frozen, v.active) {
		m.disown()
	}
	v.release()
	t.server.writeMemory.Signal()
}

// flush writes out all of the tablet's memtables.
func (t *Tablet) flush(ctx context.Context) error {
	if err := t.server.commitLog.commits.Between(t.writer.freeze); err != nil {
		return closedError(err)
	}
	if err := t.minor.run(ctx); err != nil {
		return err
	}
	t.server.commitLog.trim()
	return nil
}

// flushAndCompact is one attempt of CompactTablet.
func (t *Tablet) flushAndCompact(ctx context.Context, major bool) error {
	if err := t.flush(ctx); err != nil {
		return err
	}
	return t.server.deletions.WithDiskSpace(ctx, func() error {
		if major {
			return t.merge.major(ctx)
		}
		return t.merge.due(ctx)
	})
}

// flushMost writes out the memtables while writes go on, until little is left.
func (t *Tablet) flushMost(ctx context.Context) error {
	for range unloadFlushes {
		if err := t.flush(ctx); err != nil {
			return err
		}
		if t.views.activeBytes() < unloadBytes {
			return nil
		}
	}
	return nil
}

// errShared ends a change of metadata whose files are all marked as shared already.
var errShared = errors.New("all files are shared")

// Snapshot writes out a tablet's memtables and returns metadata that describes all of its entries as
// of some moment of the call, in immutable files (paper §5.3, §6 "Exploiting immutability"). The files
// are marked as shared first, durably: from then on no server of the tablet deletes their blobs when it
// replaces them, only garbage collection does, which knows backups. What was acknowledged before the
// call is in the snapshot, and each mutation is in it as a whole or not at all.
//
// The tablet is served meanwhile, and may split or merge: the caller uses the bounds of the result.
// Errors: api.ErrNotServing, ErrSplitPending, ErrClosed, api.ErrUnavailable without a lease,
// blobfs.ErrDiskFull, ctx's.
func (s *Server) Snapshot(ctx context.Context, r Ref) (*Meta, error) {
	for {
		t, err := s.served.tablet(r)
		if err != nil {
			return nil, err
		}
		m, err := t.snapshot(ctx)
		if errors.Is(err, errUnloaded) && ctx.Err() == nil {
			continue // it was split, merged or unloaded
		}
		if err == nil {
			// Without a lease another server may have accepted writes meanwhile.
			err = s.checkServing()
		}
		if err != nil {
			return nil, err
		}
		return m, nil
	}
}

// snapshot is one attempt of Snapshot.
func (t *Tablet) snapshot(ctx context.Context) (m *Meta, err error) {
	if !planted.On(planted.BackupUnflushed) {
		if err := t.flush(ctx); err != nil {
			return nil, err
		}
	}
	_, err = t.meta.changeIf(ctx, func(current *Meta) error {
		if !current.shareable() || planted.On(planted.BackupUnshared) {
			m = current
			return errShared
		}
		// Compactions that replace the files from now on leave them.
		v, err := t.views.acquireFiles()
		if err != nil {
			return errUnloaded
		}
		defer v.release()
		v.share()
		return nil
	}, func(next *Meta) {
		next.share()
		m = next // immutable once it is saved
	}, func(*view) {})
	if err != nil && !errors.Is(err, errShared) {
		return nil, err
	}
	return m, nil
}
