package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/heat"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// reader is the state of a read. Readers are pooled, so their buffers are reused.
type reader struct {
	rows rows
	eval table.Evaluator
	row  []byte // row part of a point read
	end  []byte
	col  []byte

	// positions is set to read the family of positions of a table that follows another one.
	positions bool
	// token is the column of tokenFamily to read; nil otherwise.
	token []byte
	// answers is set if the emitted rows are the result of the operation, not for internal use.
	answers bool
	// position is set by readRow; see For.Positioned.
	position *api.RowPosition
	access   Access      // of the caller; nil permits everything
	latched  bool        // a latch is held: the operation keeps its turn
	heat     heat.Reader // counts what is read
}

// begin prepares r for one operation of a caller.
func (r *reader) begin(as For) {
	r.access, r.rows.turns, r.latched, r.rows.trace = as.a, as.turns, false, as.trace
	r.rows.work = work{}
	r.heat.Start(as.trace.Began(), as.a)
	r.eval.Begin(as.s.limits.FilterSteps, r)
}

// latchedShare divides the steps that a filter may use while a row's latch is held, because other
// rows share the latch.
const latchedShare = 16

// beginLatched is begin for an operation that holds a latch, and may have a turn already.
func (r *reader) beginLatched(as For) {
	r.rows.turns, r.latched, r.rows.trace = as.turns, true, as.trace
	r.rows.work = work{}
	r.heat.Start(as.trace.Began(), as.a)
	r.eval.Begin(as.s.limits.FilterSteps/latchedShare, r)
}

// Pace implements table.Pacer.
func (r *reader) Pace() error {
	ctx := r.rows.ctx
	if ctx.Err() != nil {
		return fmt.Errorf("match a filter's patterns: %w", context.Cause(ctx))
	}
	switch turns := r.rows.turns; {
	case turns == nil:
		return nil
	case r.latched:
		return turns.Resume(ctx)
	default:
		return turns.Take(ctx)
	}
}

// Rest implements table.Pacer.
func (r *reader) Rest() {
	if r.rows.turns != nil && !r.latched {
		r.rows.turns.End()
	}
}

// ErrStop and ErrLast are returned by an Emit to end a scan: ErrStop if it did not accept the row,
// ErrLast if it did.
var (
	ErrStop = errors.New("stop before this row")
	ErrLast = errors.New("stop after this row")
)

var readerPool = sync.Pool{New: func() any { return &reader{} }}

// Emit receives one row of a read. The cells, their qualifiers and the key are valid during the
// call; values may be kept. An error ends the read, which returns it.
type Emit func(key []byte, cells []table.Cell) error

// ReadRow reads one row through f and calls emit if any cell is left. A nil f passes every cell.
// Errors: api.ErrNoTable, api.ErrNotServing, table.ErrLimit when the row or the filter's work on it
// is too large, a *sstable.CorruptError, and emit's.
func (as For) ReadRow(ctx context.Context, tableName string, row []byte, f *table.Program, emit Emit) error {
	s := as.s
	if err := s.limits.CheckRowKey(row); err != nil {
		return err
	}
	r := readerPool.Get().(*reader)
	defer r.release()
	s.stats.reads.Add(1)
	r.begin(as)
	r.answers, r.rows.yields, r.position = true, true, as.position
	for {
		t, err := as.tabletOf(ctx, tableName, row)
		if err != nil {
			return err
		}
		if as.a != nil {
			as.a.Begin()
		}
		woken := r.awaits(t)
		err = r.readRow(ctx, t, row, f, emit)
		if err == errInvisible {
			if err = awaitVisible(ctx, s, woken); err == nil {
				continue
			}
		}
		if (err == errGone || err == errChanged) && ctx.Err() == nil {
			continue // its replacement is in the tables
		}
		if lacksMemory(err) {
			if err = r.rows.awaitMemory(ctx); err == nil {
				continue
			}
		}
		return err
	}
}

// release returns r to the pool, without references to what it read.
func (r *reader) release() {
	const keep = 1024 // cells
	if cap(r.rows.cells) > keep {
		r.rows.cells = nil
	}
	clear(r.rows.cells[:cap(r.rows.cells)])
	if cap(r.rows.versions) > keep {
		r.rows.versions = nil
	}
	if r.rows.folding.Bytes() > keep*versionBytes {
		r.rows.folding = table.Fold{}
	}
	r.eval.Reset()
	r.rows.ctx, r.rows.most, r.answers, r.access, r.rows.turns, r.positions, r.token, r.position = nil, nil, false, nil, nil, false, nil, nil
	r.heat.End()
	r.heat = heat.Reader{}
	r.rows.report()
	r.rows.trace = nil
	r.rows.releaseMemory() // if the read waited for memory and then found no large cell
	r.rows.yields = false
	r.rows.selection.visible, r.rows.cleared = Visibility{}, nil
	readerPool.Put(r)
}

func (r *reader) readRow(ctx context.Context, t *Tablet, row []byte, f *table.Program, emit Emit) error {
	v, err := r.open(ctx, t, f)
	if err != nil {
		return err
	}
	defer v.release()
	rs := &r.rows
	if r.position != nil {
		if *r.position, err = t.positionOf(v, rs); err != nil {
			return err
		}
	}
	defer rs.closeSources()
	began := rs.trace.Detail()
	r.seekTo(row)
	r.seekPoint(v, row)
	key, ok := rs.next()
	var cells []table.Cell
	if ok {
		cells, err = r.filtered(f, key)
	} else {
		err = rs.err
	}
	if err == nil {
		rs.keepEntries(r.row)
		r.noteRead(row, ok)
		r.heat.End() // before emit, which may wait for the connection
	}
	if err == nil && r.answers {
		if err = t.server.checkServing(); err == nil && (changed(r.access) || !rs.schema.current()) {
			err = errChanged
		}
	}
	if err != nil || len(cells) == 0 {
		return err
	}
	rs.trace.Since(trace.Read, began)
	if r.answers { // emit answers, which ends the trace
		rs.report()
		rs.trace = nil
	}
	return emit(key, cells)
}

// Positioned returns a copy of as whose ReadRow sets p before it emits the row, and if it emits none: what it reads is the row after all of its changes before
// p.Next and before all later ones. ReadRow then has the errors of ReadChanges, too.
func (as For) Positioned(p *api.RowPosition) For {
	as.position = p
	return as
}

// positionOf returns the position of what r reads in a view of the tablet. The error is errInvisible if the tablet has none yet.
func (t *Tablet) positionOf(v *view, r *rows) (p api.RowPosition, err error) {
	if err := r.schema.checkStream(&r.selection.visible); err != nil {
		return p, err
	}
	gap, _ := v.changeGap()
	if !r.judge.IsVisible(gap) {
		return p, errInvisible
	}
	floor, _ := v.meta.knownChanges().Floor(t.start, t.end)
	next := max(v.lastChange(r.judge.Snapshot()), gap, floor) + 1
	return api.RowPosition{Next: next, Families: r.schema.table.FamiliesVersion(), Start: t.start}, nil
}

// awaits returns what wakes a read of a position that the tablet does not have yet; nil for other reads.
func (r *reader) awaits(t *Tablet) <-chan struct{} {
	if r.position == nil {
		return nil
	}
	return t.views.changed.Wait()
}

// awaitVisible waits until a tablet's next change has woken readers.
func awaitVisible(ctx context.Context, s *Server, woken <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.life.closing:
		return ErrClosed
	case <-woken:
		return nil
	}
}

// noteRead counts a row that was read, and its cells if there is one.
func (r *reader) noteRead(row []byte, exists bool) {
	n := int64(0)
	if exists {
		n = r.rows.bytes
	}
	r.heat.Read(row, n)
}

// filtered returns the cells of the current row that pass the filter.
func (r *reader) filtered(f *table.Program, key []byte) ([]table.Cell, error) {
	if f == nil {
		return r.rows.cells, nil
	}
	return r.eval.Eval(f, key, r.rows.cells)
}

// emit calls emit with the cells of the current row that pass the filter, if any.
func (r *reader) emit(f *table.Program, key []byte, emit Emit) error {
	r.noteRead(key, true)
	cells, err := r.filtered(f, key)
	if err != nil || len(cells) == 0 {
		return err
	}
	return emit(key, cells)
}

// open prepares r for a read of t and returns the view to read, which the caller must release.
// Errors: errGone, ErrClosed, those of the access.
//
// The schema is loaded before the view. So what the view lacks was not written by an earlier schema
// than that of the read (T12).
func (r *reader) open(ctx context.Context, t *Tablet, f *table.Program) (*view, error) {
	sc := t.schema.Load()
	v, snap, err := t.views.acquire()
	if err != nil {
		if t.server.life.isClosing() { // no other tablet takes its place
			err = ErrClosed
		}
		return nil, err
	}
	r.rows.trace.In(t.id)
	if err := r.rows.init(ctx, t, sc, snap, f, r); err != nil {
		v.release()
		return nil, err
	}
	r.rows.cleared = v.cleared
	r.heat.Begin(t.heat)
	return v, nil
}

// init prepares r for a read of t by a schema and at sequence number snap, with the access of the
// reader. Errors: those of the access.
func (r *rows) init(ctx context.Context, t *Tablet, sc *schema, snap uint64, f *table.Program, of *reader) (err error) {
	r.schema = sc
	var visible Visibility
	if a := of.access; a != nil {
		if visible, err = a.Read(ctx, r.schema.table); err != nil {
			return err
		}
	}
	if of.token != nil {
		r.selection.initToken(r.schema, of.token)
	} else {
		r.selection.init(f, r.schema, visible, of.positions)
	}
	r.selection.eval = &of.eval
	r.judge.Init(t.server.gcClock.Now(), snap)
	r.limit = t.server.cfg.RowReadBytesMax
	r.end, r.err, r.ctx, r.read, r.key = nil, nil, ctx, 0, r.key[:0]
	r.most, r.paused, r.inRow, r.seen = nil, false, false, 0
	r.gate = t.server.largeReads
	return nil
}

// Scan reads rows in the order of rg through f and calls emit for each row of which any cell is left. A
// nil f passes every cell. Scan returns nil when the range is finished, or the key to resume at when emit
// or most ends it: see Range.Resume. most may be nil. Each row is whole and consistent by itself, but rows
// are not consistent with each other. On any error but the one below, the emitted rows must be discarded.
// Errors: as ReadRow.
//
// A scan that reaches a row that is not served here ends with api.ErrNotServing and the key to resume at
// that row as next. The emitted rows are then all rows before it.
func (as For) Scan(ctx context.Context, tableName string, rg Range, f *table.Program, most *ScanBounds, emit Emit) (next []byte, err error) {
	// of the first tablet; while it is current, all tablets have the same
	var sc *schema
	if as.a != nil {
		as.a.Begin()
	}
	defer func() {
		if (err == nil || errors.Is(err, api.ErrNotServing)) && (changed(as.a) || sc != nil && !sc.current()) {
			next, err = nil, ErrAccessChanged
		}
	}()
	s := as.s
	s.stats.scans.Add(1)
	r := readerPool.Get().(*reader)
	defer r.release()
	r.begin(as)
	r.rows.yields = true
	// inside: the scan resumes in the middle of a tablet; passed: it has finished one
	inside, passed := false, false
	for !rg.empty() {
		if err := s.checkServing(); err != nil {
			return nil, err
		}
		if passed && ctx.Err() != nil {
			return nil, fmt.Errorf("scan: %w", context.Cause(ctx))
		}
		if passed && (most.over() || most != nil && r.eval.Tired()) {
			return rg.Next(), nil
		}
		t, err := as.tabletOfRange(ctx, tableName, &rg)
		if errors.Is(err, api.ErrNotServing) {
			if most != nil {
				most.Inside = inside
			}
			return append([]byte{}, rg.Next()...), err
		}
		if err != nil {
			return nil, err
		}
		began := as.trace.Detail()
		next, err := r.scan(ctx, t, rg, f, most, emit)
		as.trace.Since(trace.Read, began)
		most.addCells(r.rows.seen)
		if err == errGone && ctx.Err() == nil {
			continue // nothing was read, and the replacement is in the tables
		}
		if sc == nil && err != errGone {
			sc, as.table = r.rows.schema, t.table
			if most != nil {
				most.Table = t.table
			}
		}
		if lacksMemory(err) {
			if err = r.rows.awaitMemory(ctx); err == nil {
				if next != nil {
					rg.Resume(next)
					inside = true
				}
				continue
			}
		}
		if err == nil {
			err = s.checkServing()
		}
		if err != nil {
			return nil, err
		}
		if next != nil || !rg.pass(t) {
			return next, nil
		}
		inside, passed = false, true
	}
	return nil, nil
}

// scan reads the part of a range that is in t. With errNoMemory it returns the key of the row that
// lacked memory, if it has reached one.
func (r *reader) scan(ctx context.Context, t *Tablet, rg Range, f *table.Program, most *ScanBounds, emit Emit) ([]byte, error) {
	v, err := r.open(ctx, t, f)
	if err != nil {
		return nil, err
	}
	defer v.release()
	rs := &r.rows
	if rs.most = most; most != nil {
		most.Partly = most.Partly || !rs.selection.visible.all()
	}
	defer rs.closeSources()
	switch {
	case rg.Rows != nil:
		return r.scanSet(ctx, t, v, rg, f, most, emit)
	case rg.Reversed:
		return r.scanBack(t, v, rg, f, most, emit)
	}
	r.setBounds(t, rg)
	r.startForward(v)
	return r.scanForward(f, most, emit)
}

// startForward seeks in all sources to the start of the range.
func (r *reader) startForward(v *view) {
	rs := &r.rows
	rs.sourcesOf(v, nil, sstable.IterOptions{Gate: rs})
	rs.merge.reset(rs.sources)
	rs.merge.seekGE(r.row)
}

// scanForward reads the rows of the sources up to the end of the range. It returns as scan.
func (r *reader) scanForward(f *table.Program, most *ScanBounds, emit Emit) ([]byte, error) {
	rs := &r.rows
	for {
		key, ok := rs.next()
		if rs.paused {
			return bytes.Clone(ikey.RowKey(rs.key)), nil
		}
		if lacksMemory(rs.err) && len(rs.key) > 0 {
			most.again()
			return bytes.Clone(ikey.RowKey(rs.key[:rs.rowEnd])), rs.err
		}
		if !ok {
			return nil, rs.err
		}
		switch err := r.emit(f, key, emit); err {
		case nil:
			rs.emitted()
		case ErrStop:
			return bytes.Clone(key), nil
		case ErrLast:
			return append(bytes.Clone(key), 0), nil
		default:
			return nil, err
		}
	}
}

// setBounds sets row to the internal key at which the part of a range in t starts, and the end of rows to
// that at which it ends; nil means that it has no end.
func (r *reader) setBounds(t *Tablet, rg Range) {
	rs := &r.rows
	r.row, rs.end = r.row[:0], nil
	if string(t.start) >= string(rg.Start) && len(t.start) > 0 {
		r.row = ikey.AppendRowEnd(r.row, t.start)
	} else if len(rg.Start) > 0 {
		r.row = ikey.AppendRow(r.row, rg.Start)
	}
	if len(t.end) > 0 {
		r.end = ikey.AppendRowEnd(r.end[:0], t.end)
		rs.end = r.end
	}
	if rg.End != nil && (len(t.end) == 0 || string(rg.End) <= string(t.end)) {
		r.end = ikey.AppendRow(r.end[:0], rg.End)
		rs.end = r.end
	}
}

// ScanBounds bounds the work of one Scan, which may end without a result. A scan reads at least one row,
// and whole rows only.
type ScanBounds struct {
	Rows  int       // rows read; 0 means no bound
	Until time.Time // approximate deadline; zero means no bound

	// Looked is the number of rows read, including those without a result. A caller must not learn
	// the number of rows that it may not see. If Partly is set, Looked is 0, Rows does not apply,
	// and the key to resume at must not be sent to the caller.
	Looked int
	// Cells is the number of cells examined in these rows; 0 if Partly is set. Cells that are skipped because the
	// filter cannot pass them are not examined.
	Cells  int64
	Partly bool // the caller may not see the whole table
	// Table is the id of the scanned table; 0 if no tablet of it was found.
	Table uint64
	// Inside is set if a scan that ended with api.ErrNotServing did so inside a tablet that was
	// served before.
	Inside bool

	begun, late bool
}

// reached reports whether a bound is reached.
func (m *ScanBounds) reached() bool {
	return m.begun && (m.late || m.Rows > 0 && m.Looked >= m.Rows)
}

// enough reports whether the scan ends before the next row. Otherwise it counts that row.
func (m *ScanBounds) enough() bool {
	if m.reached() {
		return true
	}
	m.begun = true
	if !m.Partly {
		m.Looked++
	}
	return false
}

// again uncounts the current row, which will be read again.
func (m *ScanBounds) again() {
	if m == nil {
		return
	}
	m.begun = false
	if !m.Partly {
		m.Looked--
	}
}

// addCells adds cells that the scan has examined.
func (m *ScanBounds) addCells(n int64) {
	if m != nil && !m.Partly {
		m.Cells += n
	}
}

// over reports whether the deadline has passed. It reads the clock, since tablets with few rows
// never reach checkTime otherwise.
func (m *ScanBounds) over() bool {
	if m != nil {
		m.checkTime()
	}
	return m != nil && m.late
}

// checkTime reads the clock.
func (m *ScanBounds) checkTime() {
	m.late = m.late || !m.Until.IsZero() && !time.Now().Before(m.Until)
}
