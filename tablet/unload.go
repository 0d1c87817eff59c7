package tablet

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/planted"
)

// unloadBytes is how much of a tablet's memtable may be left when writes are stopped to
// unload, split or merge it: 1 MiB is written out within some 10 ms.
const unloadBytes = 1 << 20

// unloadFlushes bounds the minor compactions that are made to come down to
// unloadBytes, for a tablet that is written to as fast as the disk takes it.
const unloadFlushes = 3

// Unload writes all of a tablet out and stops serving it, so that another server can
// load it with no commit log to read (paper §6, "Speeding up tablet recovery"): a minor
// compaction while it is served, and a second, small one while writers wait. If it
// fails, the tablet is served on. Errors: api.ErrNotServing, ErrClosed, blobfs.ErrDiskFull, *api.OverloadedError while the commit log
// makes no progress, ctx's.
func (s *Server) Unload(ctx context.Context, r Ref) error {
	t, err := s.tablet(r)
	if err != nil {
		return err
	}
	if err := t.claim(ctx); err != nil {
		return err
	}
	defer t.unclaim()
	if err := t.flushMost(ctx); err != nil {
		return notServing(err)
	}
	// First: a compaction may take its time to end, and writers wait from here on.
	t.stopMerging()
	defer t.mergeMu.Unlock()
	if !planted.On(planted.UnloadWhileWritten) {
		if err := t.haltSoon(ctx); err != nil {
			return fmt.Errorf("unload tablet %d: %w", t.id, err)
		}
	}
	if err := t.flush(ctx); err != nil {
		t.resume()
		return notServing(err)
	}
	t.closeMeta()
	s.remove(t)
	s.releaseLogs()
	return nil
}

// flushMost writes the memtables out while writes go on, until little is left.
func (t *Tablet) flushMost(ctx context.Context) error {
	for range unloadFlushes {
		if err := t.flush(ctx); err != nil {
			return err
		}
		if t.activeBytes() < unloadBytes {
			return nil
		}
	}
	return nil
}

// remove takes t, whose metadata is closed, out of service. What its memtables hold
// is forgotten.
func (s *Server) remove(t *Tablet) {
	s.unregister(t)
	t.retire()
	// A log that has ended has nothing for t any more.
	if err := s.commits.Between(func() { t.unload(false) }); err != nil {
		t.unload(false)
	}
}

// lost takes a tablet out of service that another server has been given. Its
// metadata is closed.
func (s *Server) lost(t *Tablet, err error) {
	s.log.Error("tablet belongs to another server: not served any more", "tablet", t.id, "error", err)
	s.remove(t)
}

// notServing gives the errors of compactions the form in which callers know them.
func notServing(err error) error {
	if errors.Is(err, errUnloaded) {
		return errGone
	}
	return err
}
