package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/table"
)

// Split splits a tablet at row at. The lower child has the rows up to and including at and gets a
// new id; the upper one has the other rows and keeps the tablet's id. If at is nil, Split chooses a
// row that divides the bytes about evenly. It returns the lower child's name and id.
//
// The children share the tablet's files and memtables, each within its bounds. The only write is
// the lower child's row of Metadata, which is the split. Reads and writes go on until it is
// durable. Then writers wait until the pending commits are done and the children have replaced the
// tablet.
//
// Once begun, a split does not end with ctx: its outcome must be known before the tablet's metadata
// may change again. While it is unknown, the tablet is served as a whole. Recovery finds its log
// records by row, and both rows have the same redo point.
//
// Errors: api.ErrNotServing, ErrNoSplitRow, ErrBadSplitRow, those of Metadata, ErrClosed,
// *api.OverloadedError while the commit log makes no progress, ctx's.
func (s *Server) Split(ctx context.Context, r Ref, at []byte) (lower Ref, id uint64, err error) {
	if s.cfg.NewTabletID == nil {
		return Ref{}, 0, errors.New("split tablet: server has no source of tablet ids")
	}
	t, err := s.served.tablet(r)
	if err != nil {
		return Ref{}, 0, err
	}
	if err := t.claim(ctx); err != nil {
		return Ref{}, 0, err
	}
	defer t.unclaim()
	// Each child writes out the shared memtables, so keep them small. Afterwards no entries from
	// runs are left in memtables.
	if err := t.flushMost(ctx); err != nil {
		return Ref{}, 0, notServing(err)
	}
	if at, err = t.checkSplitRow(ctx, at); err != nil {
		return Ref{}, 0, err
	}
	if s.commitLog.commits.AppendAge() > s.cfg.OverloadWait { // the split could not complete
		return Ref{}, 0, fmt.Errorf("split tablet %d: %w", t.id, s.logStalled(t))
	}
	if id, err = s.cfg.NewTabletID(ctx); err != nil {
		return Ref{}, 0, fmt.Errorf("split tablet %d: %w", t.id, err)
	}
	t.minorMu.Lock()
	defer t.minorMu.Unlock()
	t.stopMerging()
	defer t.mergeMu.Unlock()
	t.metaMu.Lock()
	defer t.metaMu.Unlock()
	if t.metaClosed() {
		return Ref{}, 0, errGone
	}
	if err := s.split(t, id, at); err != nil {
		return Ref{}, 0, fmt.Errorf("split tablet %d at %.64q: %w", t.id, at, err)
	}
	return Ref{t.table, string(at)}, id, nil
}

// ErrBadSplitRow means that a tablet cannot be split at a row because one half would have no rows.
var ErrBadSplitRow = errors.New("split row is not inside the tablet's range")

// checkSplitRow returns the row to split at.
func (t *Tablet) checkSplitRow(ctx context.Context, at []byte) ([]byte, error) {
	if at == nil {
		return t.splitRow(ctx)
	}
	if err := t.server.checkEnd(at); err != nil {
		return nil, err
	}
	if !t.holds(at) || string(at) == string(t.end) {
		return nil, fmt.Errorf("%w: %.64q, rows from %.64q to %.64q", ErrBadSplitRow, at, t.start, t.end)
	}
	return bytes.Clone(at), nil
}

// checkEnd checks that a tablet may end at a row.
func (s *Server) checkEnd(row []byte) error {
	if limit := s.cfg.SplitRowBytes; limit > 0 && int64(len(row)) > limit {
		return &table.LimitError{What: "split row bytes", Limit: limit, Got: int64(len(row))}
	}
	return s.limits.CheckRowKey(row)
}

// halves are the children of a tablet that is being split.
type halves struct{ lower, upper *Tablet }

// split performs the split while nothing else can change t's files or metadata: minorMu, mergeMu
// and metaMu are held.
func (s *Server) split(t *Tablet, lowerID uint64, at []byte) error {
	m := t.metaMu.meta
	low, up := cloneMeta(m), cloneMeta(m)
	low.ID, low.End, up.Start = lowerID, at, at
	v, _, err := t.acquire()
	if err != nil {
		return err
	}
	defer v.release()
	low.bound(v, nil, at)
	up.bound(v, at, nil)
	h := halves{s.newChild(low), s.newChild(up)}
	h.lower.highPriority, h.upper.highPriority = t.highPriority, t.highPriority
	for _, c := range []*Tablet{h.lower, h.upper} {
		if err := c.takeFiles(v); err != nil {
			h.discard()
			return err
		}
	}
	s.served.setSplitPending(low.Ref(), true)
	defer s.served.setSplitPending(low.Ref(), false)
	if err := s.settleSplit(low, up); err != nil {
		h.discard()
		if errors.Is(err, ErrMetaLost) {
			t.metaMu.closed = true
			s.lost(t, err)
		} else if errors.Is(err, ErrClosed) { // the outcome is unknown
			t.metaMu.closed = true
		}
		return err
	}
	t.metaMu.closed = true // METADATA has two tablets from here on
	began := time.Now()
	_ = t.fenceWrites(context.Background()) // waits for pending writes; AppendAge showed that the log makes progress
	if err := s.commitLog.commits.Between(func() { s.replace(t, h) }); err != nil {
		h.discard()
		t.liftFence() // for reads only; the log accepts no more writes
		return closedError(err)
	}
	t.retire()
	pause := time.Since(began)
	s.stats.splits.Add(1)
	s.stats.splitPause.Store(int64(pause))
	s.log.Info("tablet split", "tablet", t.id, "at", at, "lower", lowerID, "write_pause", pause)
	for _, c := range []*Tablet{h.lower, h.upper} {
		s.minors.queue.Add(c)
		s.merges.queue.Add(c)
	}
	return nil
}

// bound narrows the files, which v has open, to start < row <= end. It removes those without
// entries there and marks the others as shared. Files that the other child removes are marked too,
// because the upper row names them until it is next written.
func (m *Meta) bound(v *view, start, end []byte) {
	for i := range m.Groups {
		var files []FileMeta
		for _, f := range m.Groups[i].Files {
			if !f.within(start, end) {
				continue
			}
			lo, hi := rowBounds(f.Start, f.End)
			if v.fileOf(&f).table.Overlaps(lo, hi) {
				f.Shared = true
				files = append(files, f)
			}
		}
		m.Groups[i].Files = files
	}
}

// takeFiles opens the files that t's metadata names, all of which are open in views.
func (t *Tablet) takeFiles(views ...*view) error {
	n := &view{active: t.mem}
	n.hold()
	for _, gm := range t.metaMu.meta.Groups {
		g := group{name: gm.Name}
		for _, fm := range gm.Files {
			var old *file
			for _, v := range views {
				if old == nil {
					old = v.fileOf(&fm)
				}
			}
			f, err := old.as(fm, t.start, t.end)
			if err != nil {
				n.groups = append(n.groups, g)
				n.release()
				return err
			}
			f.refs.Store(1)
			g.files = append(g.files, f)
		}
		n.groups = append(n.groups, g)
	}
	t.setCurrent(n)
	return nil
}

// discard releases children that are not served.
func (h *halves) discard() {
	for _, c := range []*Tablet{h.lower, h.upper} {
		c.unload(false)
	}
}

// replace puts the children in the place of t. It runs on the applier, with writes fenced.
func (s *Server) replace(t *Tablet, h halves) {
	if t.unloaded { // the table was dropped meanwhile
		h.discard()
		return
	}
	t.mu.Lock()
	mems := slices.Clone(t.mu.current.frozen)
	t.mu.Unlock()
	if t.mem.Len() > 0 {
		t.mem.stamped = t.stamped.Load()
		mems = append(mems, t.mem)
	}
	for _, c := range []*Tablet{h.lower, h.upper} {
		c.applied.Store(t.applied.Load())
		c.stamped.Store(t.stamped.Load())
		for _, m := range mems {
			p := m.part(c.start, c.end)
			p.held.refs.Add(1) // for the view
			c.mu.current.frozen = append(c.mu.current.frozen, p)
		}
	}
	if !s.served.exchange([]*Tablet{t}, []*Tablet{h.lower, h.upper}) {
		h.discard()
	}
	t.unload(false)
}

// settleSplit makes the split durable. The error means that it did not happen, except ErrClosed,
// after which the outcome is unknown.
func (s *Server) settleSplit(low, up *Meta) error {
	return s.settle(func(ctx context.Context, again bool) error {
		err := s.cfg.Metadata.Split(ctx, low, up)
		if !again || !errors.Is(err, ErrMetaChanged) {
			return err
		}
		saved, loadErr := s.cfg.Metadata.Load(ctx, low.Table, low.End)
		if loadErr != nil {
			if errors.Is(loadErr, ErrNoMeta) {
				return err
			}
			return loadErr
		}
		if saved.ID == low.ID { // an earlier attempt succeeded
			return nil
		}
		return err
	})
}

// settle repeats try until its outcome is known, since otherwise it would be unknown what to serve.
// The error is one of Metadata's that mean that the change did not happen, or ErrClosed of this
// server or of Metadata.
func (s *Server) settle(try func(ctx context.Context, again bool) error) error {
	pauses := timing.Backoff{Min: settlePauseMin, Max: settlePauseMax}
	for n := 0; ; n++ {
		ctx, cancel := s.life.metaContext()
		err := try(ctx, n > 0)
		cancel()
		if errors.Is(err, ErrClosed) {
			return ErrClosed
		}
		if err == nil || errors.Is(err, ErrMetaChanged) || errors.Is(err, ErrMetaLost) || errors.Is(err, ErrMetaTooLarge) {
			return err
		}
		pause := pauses.Next()
		s.log.Warn("metadata change outcome unknown", "err", err, "retry_in", pause)
		s.life.sleep(pause)
		select {
		case <-s.life.closing:
			return ErrClosed
		default:
		}
	}
}

// Pauses between attempts of a metadata change with an unknown outcome.
const (
	settlePauseMin = 5 * time.Millisecond
	settlePauseMax = time.Second
)

// ErrSplitPending means that a tablet is being split off or merged and the outcome is not known yet.
// Its rows are served.
var ErrSplitPending = errors.New("tablet is being split off or merged")
