package tablet

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/planted"
)

// unloadBytes is the size of a tablet's memtable, in bytes, at which writes are fenced to unload,
// split or merge it. 1 MiB is written out within some 10 ms.
const unloadBytes = 1 << 20

// unloadFlushes bounds the minor compactions before that, for a tablet that is written to as fast
// as the disk accepts it.
const unloadFlushes = 3

// Unload writes out a tablet completely and stops serving it, so that another server can load it
// without reading a commit log (paper §6, "Speeding up tablet recovery"). The first minor
// compaction runs while the tablet is served, the second, small one while writers wait. If Unload
// fails, the tablet is still served. Errors: api.ErrNotServing, ErrClosed, blobfs.ErrDiskFull,
// *api.OverloadedError while the commit log makes no progress, ctx's.
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
	// Before the fence: a compaction may take a while to end, and writers wait from there on.
	t.stopMerging()
	defer t.mergeMu.Unlock()
	if !planted.On(planted.UnloadWhileWritten) {
		if err := t.fenceWritesSoon(ctx); err != nil {
			return fmt.Errorf("unload tablet %d: %w", t.id, err)
		}
	}
	if err := t.flush(ctx); err != nil {
		t.liftFence()
		return notServing(err)
	}
	t.closeMeta()
	s.remove(t)
	s.releaseLogs()
	return nil
}

// flushMost writes out the memtables while writes go on, until little is left.
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

// remove takes t, whose metadata is closed, out of service. Its memtables are discarded.
func (s *Server) remove(t *Tablet) {
	s.unregister(t)
	t.retire()
	// A log that has ended applies nothing to t any more.
	if err := s.commits.Between(func() { t.unload(false) }); err != nil {
		t.unload(false)
	}
}

// lost takes out of service a tablet that was assigned to another server. Its metadata is closed.
func (s *Server) lost(t *Tablet, err error) {
	s.log.Error("tablet assigned to another server, no longer served", "tablet", t.id, "err", err)
	s.remove(t)
}

// notServing converts the errors of compactions to those that callers know.
func notServing(err error) error {
	if errors.Is(err, errUnloaded) {
		return errGone
	}
	return err
}
