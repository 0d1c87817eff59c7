package tablet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/tablet/tombstone"
)

// ErrNotNeighbours means that two tablets cannot be merged because they are not adjacent in one
// table.
var ErrNotNeighbours = errors.New("tablets are not neighbours")

// Merge makes one tablet of two neighbours that are both served here. It has the id of the upper
// one. First the upper row is replaced by one with the files of both, each within its bounds; then
// the lower row is removed. In between METADATA has both tablets, and the upper one's files below
// its range are ignored.
//
// Writers of both wait meanwhile; readers do not. Once begun, a merge does not end with ctx.
// Errors: api.ErrNotServing, ErrNotNeighbours, those of Metadata, ErrClosed, ctx's.
func (s *Server) Merge(ctx context.Context, lowerRef, upperRef Ref) error {
	lower, err := s.served.tablet(lowerRef)
	if err != nil {
		return err
	}
	upper, err := s.served.tablet(upperRef)
	if err != nil {
		return err
	}
	if lower.table != upper.table || len(lower.end) == 0 || string(lower.end) != string(upper.start) {
		return fmt.Errorf("merge tablets %d and %d: %w", lower.id, upper.id, ErrNotNeighbours)
	}
	m := &tabletMerge{server: s, lower: lower, upper: upper}
	both := []*Tablet{lower, upper} // always in this order, so that merges cannot deadlock
	for _, t := range both {
		if err := t.fence.claim(ctx); err != nil {
			return err
		}
		defer t.fence.unclaim()
	}
	if err := m.ready(ctx); err != nil {
		return notServing(err)
	}
	for _, t := range both {
		t.merge.stop()
		defer t.merge.mu.Unlock()
	}
	began := time.Now()
	for _, t := range both {
		if err := t.fence.raiseSoon(ctx, s.cfg.OverloadWait, s.logStalled(t)); err != nil {
			return fmt.Errorf("merge tablets %d and %d: %w", lower.id, upper.id, err)
		}
		defer t.fence.lift() // if it is still served
	}
	for _, t := range both {
		if planted.On(planted.MergeLosesMemtable) {
			break
		}
		if err := t.flush(ctx); err != nil {
			return notServing(err)
		}
	}
	for _, t := range both {
		t.meta.mu.Lock()
		defer t.meta.mu.Unlock()
		if t.meta.isClosed() {
			return errGone
		}
	}
	if err := m.run(); err != nil {
		return fmt.Errorf("merge tablets %d and %d: %w", lower.id, upper.id, err)
	}
	s.log.Info("tablets merged", "lower", lower.id, "upper", upper.id, "write_pause", time.Since(began))
	return nil
}

// tabletMerge is one merge of two neighbours.
type tabletMerge struct {
	server       *Server
	lower, upper *Tablet
	one          *Tablet // that replaces both
}

// ready reduces what must be written while writers wait, and the files that reads must merge
// afterwards.
func (m *tabletMerge) ready(ctx context.Context) error {
	both := []*Tablet{m.lower, m.upper}
	for _, t := range both {
		if err := t.flushMost(ctx); err != nil {
			return err
		}
	}
	files := map[string]int{}
	for _, t := range both {
		v, _, err := t.views.acquire()
		if err != nil {
			return err
		}
		for i := range v.groups {
			files[v.groups[i].name] += len(v.groups[i].files)
		}
		v.release()
	}
	for _, n := range files {
		if n < m.server.cfg.FilesMax/2 {
			continue
		}
		for _, t := range both {
			if err := t.merge.major(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// run performs the merge while both tablets are fenced, have all entries in files, and nothing
// else can change their files or metadata: the locks of their merge and meta are held.
func (m *tabletMerge) run() error {
	s, lower, upper := m.server, m.lower, m.upper
	before := upper.meta.current
	merged := mergeMeta(lower.meta.current, before)
	if merged.forgetParts(s.cfg.Now); len(merged.Parts) > partsMax {
		return manyParts(len(merged.Parts))
	}
	m.one = s.newChild(merged, upper.highPriority)
	lv, _, err := lower.views.acquire()
	if err != nil {
		return err
	}
	defer lv.release()
	uv, _, err := upper.views.acquire()
	if err != nil {
		return err
	}
	defer uv.release()
	if err := m.one.takeFiles(lv, uv); err != nil {
		return err
	}
	if err := m.settle(merged); err != nil {
		m.one.unload(false)
		if errors.Is(err, ErrClosed) { // the outcome is unknown
			lower.meta.closed, upper.meta.closed = true, true
			return err
		}
		m.undo(before, err)
		return err
	}
	lower.meta.closed, upper.meta.closed = true, true
	moment.Pass("a merge is in METADATA", "")
	if err := s.commitLog.commits.Between(m.replace); err != nil {
		m.one.unload(false)
		return closedError(err)
	}
	lower.fence.retire()
	upper.fence.retire()
	s.stats.tabletMerges.Add(1)
	s.merges.queue.Add(m.one)
	return nil
}

// mergeMeta returns the combined metadata of both tablets.
func mergeMeta(lower, upper *Meta) *Meta {
	m := cloneMeta(upper)
	m.Start = lower.Start
	m.Redo, m.Stamped = max(lower.Redo, upper.Redo), max(lower.Stamped, upper.Stamped)
	m.Cleared = tombstone.Join(lower.Cleared, upper.Cleared)
	m.Changes = joinChanges(lower, upper)
	m.Parts = joinParts(lower.Parts, upper.Parts)
	if lower.LastMajor.Before(m.LastMajor) {
		m.LastMajor = lower.LastMajor
	}
	groups := map[string][]FileMeta{}
	for _, half := range []*Meta{lower, upper} {
		for _, g := range half.Groups {
			for _, f := range g.Files {
				// All files get bounds: if the lower row remains, a server that loads the upper
				// tablet must see which files are not its own.
				f.within(half.Start, half.End)
				groups[g.Name] = append(groups[g.Name], f)
			}
		}
	}
	m.Groups = nil
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		// The files of each keep their order. A compaction of the first n files takes the oldest of
		// each tablet, and so the complete history of every row.
		slices.SortStableFunc(groups[name], func(a, b FileMeta) int { return cmp.Compare(a.MinSeq, b.MinSeq) })
		m.Groups = append(m.Groups, GroupMeta{Name: name, Files: groups[name]})
	}
	return m
}

// settle makes the merge durable. The error means that it did not happen, except ErrClosed, after
// which the outcome is unknown.
func (m *tabletMerge) settle(merged *Meta) error {
	changes := &m.server.metadata
	err := changes.settle(func(context.Context, bool) error {
		_, err := m.upper.meta.save(merged)
		return err
	})
	if err != nil {
		return err
	}
	return changes.remove(m.lower.meta.current)
}

// undo restores the upper tablet's row. If that fails, the next change of the row does it.
func (m *tabletMerge) undo(before *Meta, why error) {
	s, lower, upper := m.server, m.lower, m.upper
	upper.meta.current = before
	if !upper.meta.closed {
		if _, err := upper.meta.save(before); err != nil {
			s.log.Warn("metadata not restored after failed merge", "tablet", upper.id, "err", err)
		}
	}
	if errors.Is(why, ErrMetaLost) && !upper.meta.closed {
		lower.meta.closed = true
		s.lost(lower, why)
	}
}

// replace puts one tablet in the place of both. It runs on the applier, with the writes of both
// fenced and their memtables empty.
func (m *tabletMerge) replace() {
	lower, upper, one := m.lower, m.upper, m.one
	if lower.writer.unloaded || upper.writer.unloaded { // the table was dropped meanwhile
		one.unload(false)
		return
	}
	one.views.applied.Store(max(lower.views.applied.Load(), upper.views.applied.Load()))
	one.writer.stamped.Store(max(lower.writer.stamped.Load(), upper.writer.stamped.Load()))
	if !m.server.served.exchange([]*Tablet{lower, upper}, []*Tablet{one}) {
		one.unload(false)
	}
	lower.unload(false)
	upper.unload(false)
}
