package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
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
	if err := t.fence.claim(ctx); err != nil {
		return Ref{}, 0, err
	}
	defer t.fence.unclaim()
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
	t.minor.mu.Lock()
	defer t.minor.mu.Unlock()
	t.merge.stop()
	defer t.merge.mu.Unlock()
	t.meta.mu.Lock()
	defer t.meta.mu.Unlock()
	if t.meta.isClosed() {
		return Ref{}, 0, errGone
	}
	if err := t.meta.settleParts(); err != nil {
		return Ref{}, 0, fmt.Errorf("split tablet %d at %.64q: %w", t.id, at, err)
	}
	if err := (&tabletSplit{server: s, tablet: t, lowerID: id, at: at}).run(); err != nil {
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
	if err := t.server.splits.checkEnd(at); err != nil {
		return nil, err
	}
	if !t.holds(at) || string(at) == string(t.end) {
		return nil, fmt.Errorf("%w: %.64q, rows from %.64q to %.64q", ErrBadSplitRow, at, t.start, t.end)
	}
	return bytes.Clone(at), nil
}

// tabletSplit is one split of a tablet, while nothing else can change the tablet's files or metadata:
// the locks of its minor and merge and of its meta are held.
type tabletSplit struct {
	server  *Server
	tablet  *Tablet
	lowerID uint64
	at      []byte

	low, up  *Meta
	children []*Tablet // lower, upper
}

func (p *tabletSplit) run() error {
	s, t := p.server, p.tablet
	v, _, err := t.views.acquire()
	if err != nil {
		return err
	}
	defer v.release()
	if err := p.prepare(v); err != nil {
		return err
	}
	s.served.setSplitPending(p.low.Ref(), true)
	defer s.served.setSplitPending(p.low.Ref(), false)
	if err := s.metadata.split(p.low, p.up); err != nil {
		p.discard()
		if errors.Is(err, ErrMetaLost) {
			t.meta.closed = true
			s.lost(t, err)
		} else if errors.Is(err, ErrClosed) { // the outcome is unknown
			t.meta.closed = true
		}
		return err
	}
	t.meta.closed = true // METADATA has two tablets from here on
	moment.Pass("a split is in METADATA", "")
	began := time.Now()
	_ = t.fence.raise(context.Background()) // waits for pending writes; AppendAge showed that the log makes progress
	if err := s.commitLog.commits.Between(p.replace); err != nil {
		p.discard()
		t.fence.lift() // for reads only; the log accepts no more writes
		return closedError(err)
	}
	t.fence.retire()
	pause := time.Since(began)
	s.stats.splits.Add(1)
	s.stats.splitPause.Store(int64(pause))
	s.log.Info("tablet split", "tablet", t.id, "at", p.at, "lower", p.lowerID, "write_pause", pause)
	moment.Pass("the parts of a split are served", "")
	for _, c := range p.children {
		s.minors.queue.Add(c)
		s.merges.queue.Add(c)
	}
	return nil
}

// prepare makes the children, which share the tablet's files. v is its view.
func (p *tabletSplit) prepare(v *view) error {
	s, t := p.server, p.tablet
	p.low = cloneMeta(t.meta.current)
	p.low.forgetParts(s.cfg.Now)
	p.up = cloneMeta(p.low)
	p.low.ID, p.low.End, p.up.Start = p.lowerID, p.at, p.at
	p.low.clip(nil, p.at)
	p.up.clip(p.at, nil)
	p.low.bound(v, nil, p.at)
	p.up.bound(v, p.at, nil)
	p.children = []*Tablet{s.newChild(p.low, t.highPriority), s.newChild(p.up, t.highPriority)}
	for _, c := range p.children {
		if err := c.takeFiles(v); err != nil {
			p.discard()
			return err
		}
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
	n := &view{active: t.writer.mem, cleared: t.meta.current.Cleared}
	n.setChanges(t.meta.current)
	n.hold()
	for _, gm := range t.meta.current.Groups {
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
	t.views.setCurrent(n)
	return nil
}

// discard releases children that are not served.
func (p *tabletSplit) discard() {
	for _, c := range p.children {
		c.unload(false)
	}
}

// replace puts the children in the place of the tablet. It runs on the applier, with writes fenced.
func (p *tabletSplit) replace() {
	t := p.tablet
	if t.writer.unloaded { // the table was dropped meanwhile
		p.discard()
		return
	}
	t.views.mu.Lock()
	mems := slices.Clone(t.views.current.frozen)
	t.views.mu.Unlock()
	if t.writer.mem.Len() > 0 && !planted.On(planted.SplitLosesMemtable) {
		t.writer.mem.stamped = t.writer.stamped.Load()
		mems = append(mems, t.writer.mem)
	}
	for _, c := range p.children {
		c.views.applied.Store(t.views.applied.Load())
		c.writer.stamped.Store(t.writer.stamped.Load())
		for _, m := range mems {
			part := m.part(c.start, c.end)
			part.held.refs.Add(1) // for the view
			c.views.current.frozen = append(c.views.current.frozen, part)
		}
	}
	if !p.server.served.exchange([]*Tablet{t}, p.children) {
		p.discard()
	}
	t.unload(false)
}

// ErrSplitPending means that a tablet is being split off or merged and the outcome is not known yet.
// Its rows are served.
var ErrSplitPending = errors.New("tablet is being split off or merged")

// SplitCandidate describes a tablet that should be split because of its size or its load.
type SplitCandidate struct {
	Ref          Ref
	ID           uint64 // of the tablet, for logs
	Bytes        int64
	OpsPerSecond int64
	// At is a row that divides the load; nil if the tablet should be split by size.
	At []byte
}

// load measures the operations on a tablet.
type load struct {
	ops    atomic.Int64
	rate   atomic.Int64 // operations per second in the last period
	rows   atomic.Pointer[recentRows]
	before int64 // ops at the end of the last period; used by timerLoop only
	busy   int   // consecutive periods with more than its share; used by timerLoop only
}

// recentRows are sampled rows of recent operations.
type recentRows [loadRows]atomic.Pointer[[]byte]

const (
	// loadRows is the number of sampled rows, one of every loadSample operations: those of a minute
	// at 1,000 operations a second.
	loadRows, loadSample = 64, 1024

	// busyPeriods is the number of consecutive periods in which a tablet must have more than its
	// share before it is split. Half a minute, so that a burst does not split a tablet.
	busyPeriods = 3
)

// note counts an operation on a row.
func (l *load) note(row []byte) {
	if n := l.ops.Add(1); n%loadSample == 0 && len(row) > 0 {
		// not row itself: taking its address would cost every call an allocation
		kept := bytes.Clone(row)
		if l.rows.Load() == nil {
			l.rows.CompareAndSwap(nil, new(recentRows))
		}
		l.rows.Load()[n/loadSample%loadRows].Store(&kept)
	}
}

// middle returns a row that divides the recent operations so that each half has at least a quarter
// of them. It returns nil if there were too few, or most were on one row.
func (l *load) middle() []byte {
	var rows [][]byte
	late := l.rows.Load()
	if late == nil {
		return nil
	}
	for i := range late {
		if row := late[i].Load(); row != nil {
			rows = append(rows, *row)
		}
	}
	if len(rows) < loadRows/4 {
		return nil
	}
	slices.SortFunc(rows, bytes.Compare)
	mid := rows[(len(rows)-1)/2]
	above := len(rows) - upper(rows, mid)
	if below := rowBelow(mid); above < len(rows)/4 {
		// Many of them are on mid itself, which may belong to the upper half.
		if n := upper(rows, below); len(below) == 0 || n < len(rows)/4 {
			return nil
		}
		return below
	}
	return mid
}

// upper returns the number of sorted rows at or below row.
func upper(rows [][]byte, row []byte) int {
	n, found := slices.BinarySearchFunc(rows, row, bytes.Compare)
	for found && n < len(rows) && bytes.Equal(rows[n], row) {
		n++
	}
	return n
}

// splitter finds tablets that should be split.
type splitter struct {
	cfg    *Config
	limits *table.Limits
	served *TabletMap
}

// check passes the tablets that should be split to OnSplitCandidate. elapsed is the time since
// the last call.
func (p *splitter) check(elapsed time.Duration) {
	all := p.served.all()
	total := int64(0)
	for _, t := range all {
		ops := t.load.ops.Load()
		rate := int64(float64(ops-t.load.before) / elapsed.Seconds())
		t.load.before = ops
		t.load.rate.Store(rate)
		total += rate
	}
	if p.cfg.OnSplitCandidate == nil {
		return
	}
	for _, t := range all {
		rate := t.load.rate.Load()
		w := SplitCandidate{Ref: t.ref(), ID: t.id, Bytes: t.views.bytes(), OpsPerSecond: rate}
		if p.cfg.SplitBytes > 0 && w.Bytes >= p.cfg.SplitBytes {
			p.cfg.OnSplitCandidate(w)
			continue
		}
		// A tablet's share is twice the mean. With three tablets or fewer there is no such limit.
		if p.cfg.SplitOps <= 0 || rate < p.cfg.SplitOps || len(all) > 3 && rate*int64(len(all)) < 2*total {
			t.load.busy = 0
			continue
		}
		if t.load.busy++; t.load.busy < busyPeriods {
			continue
		}
		if w.At = t.load.middle(); w.At != nil && p.checkEnd(w.At) == nil && t.holds(w.At) && !bytes.Equal(w.At, t.end) {
			t.load.busy = 0
			p.cfg.OnSplitCandidate(w)
		}
	}
}

// checkEnd checks that a tablet may end at a row.
func (p *splitter) checkEnd(row []byte) error {
	if limit := p.cfg.SplitRowBytes; limit > 0 && int64(len(row)) > limit {
		return &table.LimitError{What: "split row bytes", Limit: limit, Got: int64(len(row))}
	}
	return p.limits.CheckRowKey(row)
}
