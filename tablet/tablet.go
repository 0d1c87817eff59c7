package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/heat"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sched"
	"github.com/steledb/stele/tablet/tombstone"
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
	heat   *heat.Tablet
	bulk   sched.Debts // of the commits of parts
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
	t.server.retiredHeat.Add(t.heat)
	if drop {
		for _, g := range v.groups {
			for _, f := range g.files {
				f.deleteLater()
			}
		}
		if v.meta.Changes != nil {
			t.server.files.deleteChanges(v.meta.Changes.Files)
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
	return s.snapshotOf(ctx, r, func(t *Tablet) (*Meta, error) { return t.snapshot(ctx, false) })
}

// SnapshotChanges is Snapshot with the tablet's change files, which have all changes with times up to until, in µs. They are marked as
// shared, too. Further errors: api.ErrNoChangeStream; api.ErrNotServing while the server's clock is not past until.
func (s *Server) SnapshotChanges(ctx context.Context, r Ref, until int64) (*Meta, error) {
	return s.snapshotOf(ctx, r, func(t *Tablet) (*Meta, error) {
		if err := t.pass(ctx, until); err != nil {
			return nil, err
		}
		return t.snapshot(ctx, true)
	})
}

// snapshotOf takes a snapshot of a tablet.
func (s *Server) snapshotOf(ctx context.Context, r Ref, take func(*Tablet) (*Meta, error)) (*Meta, error) {
	for {
		t, err := s.served.tablet(r)
		if err != nil {
			return nil, err
		}
		m, err := take(t)
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

// passPause is how long pass waits before it looks at the commits again.
const passPause = time.Millisecond

// pass waits until all commits of a tablet with times up to until, in µs, are applied.
func (t *Tablet) pass(ctx context.Context, until int64) error {
	sc, log := t.schema.Load(), &t.server.commitLog
	if sc.table.ChangeRetention == 0 {
		return fmt.Errorf("table %q: %w", sc.table.Name, api.ErrNoChangeStream)
	}
	// In this order: a later commit gets a later time. A time of milliseconds is rounded down.
	now := sc.table.Granularity.Stamp(t.writer.cfg.Now().UnixMicro(), 0)
	next := log.commits.Next()
	if now <= until {
		return fmt.Errorf("the clock of the tablet's server is at %d µs, and not past %d µs: %w", now, until, api.ErrNotServing)
	}
	for log.appliedNext.Load() < next && !log.commits.Idle() {
		if err := timing.Sleep(ctx, passPause); err != nil {
			return err
		}
		if err := t.server.checkServing(); err != nil {
			return err
		}
	}
	return nil
}

// snapshot is one attempt of a snapshot, with change files or without.
func (t *Tablet) snapshot(ctx context.Context, withChanges bool) (m *Meta, err error) {
	if !planted.On(planted.BackupUnflushed) {
		if err := t.flush(ctx); err != nil {
			return nil, err
		}
	}
	_, err = t.meta.changeIf(ctx, func(current *Meta) error {
		unshared := current.shareable() || withChanges && current.Changes != nil && current.Changes.Shareable()
		if !unshared || planted.On(planted.BackupUnshared) {
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
		if withChanges && next.Changes != nil {
			next.Changes = next.Changes.Share()
		}
		m = next // immutable once it is saved
	}, func(*view) {})
	if err != nil && !errors.Is(err, errShared) {
		return nil, err
	}
	whole := *m
	whole.Changes, whole.Parts = nil, nil // a copy of the rows does not need how they came about
	if withChanges {
		whole.Changes = m.knownChanges()
	}
	return &whole, nil
}

// Bounds of a tablet's range tombstones. At clearsMax, or clearBytesMax of row keys, no more are accepted. From clearsDue on, or half of
// the bytes, a major compaction removes them.
const (
	clearsMax     = 128
	clearsDue     = clearsMax / 2
	clearBytesMax = 512 << 10 // eight ranges between the longest row keys; METADATA rows with all files are of this size, too
)

// Clear deletes the rows start <= row < end of a tablet, an empty bound meaning none, in a time that does not depend on their number. It
// adds a range tombstone to the tablet's metadata, and removes the files that have no other rows. It returns the tablet's bounds. start must be in
// the tablet: otherwise it was split or merged, and the caller must locate the row again.
//
// Writes wait for the METADATA change, and reads do not. What was acknowledged before the call is deleted, and what is written after it is
// kept. Once the change has begun, it does not end with ctx. After an error other than those named below, the rows may be deleted by the tablet's next server.
//
// Errors: api.ErrNotServing, *api.OverloadedError if the tablet has too many range tombstones or its commit log makes no progress,
// table.ErrReadOnly, an *api.FollowerError, those of Metadata, ErrClosed, ctx's.
func (s *Server) Clear(ctx context.Context, r Ref, start, end []byte) (from, to []byte, err error) {
	t, err := s.served.tablet(r)
	if err != nil {
		return nil, nil, err
	}
	if err := t.fence.claim(ctx); err != nil {
		return nil, nil, err
	}
	defer t.fence.unclaim()
	if len(t.start) > 0 && bytes.Compare(start, t.start) <= 0 || len(t.end) > 0 && bytes.Compare(start, t.end) > 0 {
		return nil, nil, fmt.Errorf("tablet %d does not have the first row of the range: %w", t.id, api.ErrNotServing)
	}
	c := &clearing{tablet: t, rows: tombstone.Range{Start: bytes.Clone(start), End: bytes.Clone(end)}.Clip(t.start, t.end)}
	if err := c.run(ctx); err != nil {
		return nil, nil, fmt.Errorf("clear rows of tablet %d: %w", t.id, err)
	}
	return t.start, t.end, nil
}

// clearing is one Clear of a tablet, which has the claim.
type clearing struct {
	tablet *Tablet
	rows   tombstone.Range
	next   *Meta
	// stopped is set if no merging or major compaction runs meanwhile: files can be removed.
	stopped bool
	removed []*file
}

func (c *clearing) run(ctx context.Context) error {
	t := c.tablet
	s := t.server
	v, err := t.views.acquireFiles()
	if err != nil {
		return err
	}
	c.stopped = len(c.removable(v)) > 0
	v.release()
	if c.stopped { // before the fence: a compaction may take a while to end
		t.merge.stop()
		defer t.merge.mu.Unlock()
	}
	began := time.Now()
	if err := t.fence.raiseSoon(ctx, s.cfg.OverloadWait, s.logStalled(t)); err != nil {
		return err
	}
	defer t.fence.lift()
	sc := t.schema.Load()
	if err := sc.checkWritable(""); err != nil {
		return err
	}
	t.meta.mu.Lock()
	defer t.meta.mu.Unlock()
	if t.meta.isClosed() {
		return errGone
	}
	if err := c.save(); err != nil {
		return err
	}
	s.log.Info("rows cleared", "tablet", t.id, "tombstones", len(c.next.Cleared), "files", len(c.removed), "write_pause", time.Since(began))
	if t.meta.manyClears() {
		s.merges.queue.Add(t)
	}
	if !sc.current() { // a table that became read-only meanwhile must acknowledge no change: its reader may believe that it has all of them
		return fmt.Errorf("the table's schema changed meanwhile: %w", api.ErrNotServing)
	}
	return nil
}

// removable returns the files of a view that have no rows but those to be cleared.
func (c *clearing) removable(v *view) (files []*file) {
	for _, g := range v.groups {
		for _, f := range g.files {
			if f.onlyIn(&c.rows) {
				files = append(files, f)
			}
		}
	}
	return files
}

// onlyIn reports whether a file has no rows outside a range.
func (f *file) onlyIn(r *tombstone.Range) bool {
	if r.Covers(f.meta.Start, f.meta.End) {
		return true
	}
	lo, hi := rowBounds(f.meta.Start, f.meta.End)
	from, to := ikey.AppendRow(nil, r.Start), ikey.AppendRow(nil, r.End)
	below := len(r.Start) > 0 && f.table.Overlaps(lo, from)
	above := len(r.End) > 0 && f.table.Overlaps(to, hi)
	return !below && !above
}

// record records the time of the change, for restores to a time: it is later than all writes before it, and earlier than those after it.
func (c *clearing) record() {
	t, sc := c.tablet, c.tablet.schema.Load().table
	at := sc.Granularity.Stamp(t.writer.cfg.Now().UnixMicro(), max(t.writer.stamped.Load(), c.next.Stamped)+1)
	t.writer.stamped.Store(at) // writes are fenced
	c.next.Stamped = at
	switch {
	case sc.ChangeRetention > 0:
		c.next.Changes = t.meta.current.knownChanges().Clear(changes.Clear{Range: c.rows, Time: at})
	case c.next.Changes != nil:
		c.next.Changes = t.meta.current.Changes.Forget(c.rows.Seq, at)
	}
}

// save makes the change durable, and installs its view. The tablet's metadata is locked, and writes are fenced.
func (c *clearing) save() error {
	t := c.tablet
	v, err := t.views.acquireFiles()
	if err != nil {
		return err
	}
	defer v.release()
	if c.stopped {
		c.removed = c.removable(v)
	}
	written := t.views.applied.Load()
	c.rows.Seq = t.server.commitLog.commits.Reserve() // writes are fenced: those before it have lower numbers, and those after it higher ones
	old := t.meta.current
	c.next = cloneMeta(old)
	c.next.forgetParts(t.server.cfg.Now)
	for _, g := range old.Groups {
		c.next.replaceFiles(g.Name, c.removed, nil)
	}
	c.next.Cleared = old.Cleared.Raise(written, c.rows.Seq).Add(c.rows) // so that neighbours without writes between become one range
	if n := len(c.next.Cleared); n > len(old.Cleared) && (n > clearsMax || c.next.Cleared.Bytes() > clearBytesMax) {
		t.server.merges.queue.Add(t)
		return &api.OverloadedError{
			Reason:     fmt.Sprintf("tablet has %d cleared ranges, the most that it may have, and a major compaction that removes them has begun", len(old.Cleared)),
			RetryAfter: overloadRetry,
		}
	}
	c.record()
	c.next.checkAfter(old)
	moment.Pass("before rows are cleared in METADATA", "")
	if err := t.meta.changes.settle(func(context.Context, bool) error {
		next := c.next
		if planted.On(planted.ClearNotSaved) {
			next = cloneMeta(next)
			next.Cleared = old.Cleared
		}
		_, err := t.meta.save(next)
		return err
	}); err != nil {
		t.meta.closed = t.meta.closed || errors.Is(err, ErrClosed) // the outcome is unknown
		return err
	}
	moment.Pass("rows are cleared in METADATA", "")
	for _, f := range c.removed {
		f.deleteLater()
	}
	if err := t.server.commitLog.commits.Between(c.install); err != nil {
		c.install() // the applier has ended
	}
	return nil
}

// install installs the view after the change. It runs on the applier, while writes are fenced: each memtable, and so each file, then lies below the
// tombstone or above it, and no view without the tombstone gets entries above it.
func (c *clearing) install() {
	t := c.tablet
	t.writer.renew(func(v *view) {
		v.cleared = c.next.Cleared
		for i := range v.groups {
			v.groups[i].files = slices.DeleteFunc(v.groups[i].files, func(f *file) bool { return containsFile(c.removed, f) })
		}
		v.setChanges(c.next)
	})
	t.views.changed.Wake()
}
