package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// reader is what a read works with. Readers are pooled: their buffers last.
type reader struct {
	rows rows
	eval table.Evaluator
	row  []byte // row part of a point read
	end  []byte
	col  []byte

	// answers is whether what is emitted is an answer, and not for our own use.
	answers bool
	access  Access // of who reads; nil gets all
	latched bool   // a latch is held: the operation keeps a turn that it has
}

// begin readies r for one operation as a caller may do it.
func (r *reader) begin(as For) {
	r.access, r.rows.turns, r.latched = as.a, as.turns, false
	r.eval.Begin(as.s.limits.FilterSteps, r)
}

// latchedShare is the part of the steps of a filter that it may take while a row's latch is held: other rows
// have the same latch.
const latchedShare = 16

// beginLatched is begin for an operation that holds a latch, and may have a turn already.
func (r *reader) beginLatched(as For) {
	r.rows.turns, r.latched = as.turns, true
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

// ErrStop and ErrLast are what an Emit returns to end a scan: ErrStop without
// having taken the row, ErrLast after having taken it.
var (
	ErrStop = errors.New("stop before this row")
	ErrLast = errors.New("stop after this row")
)

var readerPool = sync.Pool{New: func() any { return &reader{} }}

// Emit takes one row of a read. The cells, their qualifiers and the key are valid
// during the call; values may be kept. An error ends the read and is returned.
type Emit func(key []byte, cells []table.Cell) error

// ReadRow reads one row through f, where nil passes every cell, and calls emit if
// anything is left of it. Errors: api.ErrNoTable, api.ErrNotServing, table.ErrLimit
// when the row or the filter's work on it is too large, a *sstable.CorruptError, and emit's.
func (as For) ReadRow(ctx context.Context, tableName string, row []byte, f *table.Program, emit Emit) error {
	s := as.s
	if err := s.limits.CheckRowKey(row); err != nil {
		return err
	}
	r := readerPool.Get().(*reader)
	defer r.release()
	s.stats.reads.Add(1)
	r.begin(as)
	r.answers, r.rows.yields = true, true
	for {
		t, err := as.tabletOf(ctx, tableName, row)
		if err != nil {
			return err
		}
		if as.a != nil {
			as.a.Begin()
		}
		err = r.readRow(ctx, t, row, f, emit)
		if (err == errGone || err == errChanged) && ctx.Err() == nil {
			continue // what is served in its place is in the tables
		}
		if lacksRoom(err) {
			if err = r.rows.awaitRoom(ctx); err == nil {
				continue
			}
		}
		return err
	}
}

// release puts r back into the pool, with no hold on what it has read.
func (r *reader) release() {
	const keep = 1024 // cells
	if cap(r.rows.cells) > keep {
		r.rows.cells = nil
	}
	clear(r.rows.cells[:cap(r.rows.cells)])
	if cap(r.rows.versions) > keep {
		r.rows.versions = nil
	}
	r.eval.Reset()
	r.rows.ctx, r.rows.most, r.answers, r.access, r.rows.turns = nil, nil, false, nil, nil
	r.rows.leave() // of who has waited, and then found no large cell
	r.rows.yields = false
	r.rows.want.sight = Sight{}
	readerPool.Put(r)
}

func (r *reader) readRow(ctx context.Context, t *Tablet, row []byte, f *table.Program, emit Emit) error {
	v, snap, err := t.acquire()
	if err != nil {
		return err
	}
	defer v.release()
	rs := &r.rows
	if err := rs.init(ctx, t, snap, f, r); err != nil {
		return err
	}
	defer rs.closeSources()
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
	}
	if err == nil && r.answers {
		if err = t.server.provable(); err == nil && (changed(r.access) || !rs.schema.current()) {
			err = errChanged
		}
	}
	if err != nil || len(cells) == 0 {
		return err
	}
	return emit(key, cells)
}

// filtered returns what the filter leaves of the row at hand.
func (r *reader) filtered(f *table.Program, key []byte) ([]table.Cell, error) {
	if f == nil {
		return r.rows.cells, nil
	}
	return r.eval.Eval(f, key, r.rows.cells)
}

// emit passes the row at hand through the filter and on.
func (r *reader) emit(f *table.Program, key []byte, emit Emit) error {
	cells, err := r.filtered(f, key)
	if err != nil || len(cells) == 0 {
		return err
	}
	return emit(key, cells)
}

// init readies r for a read of t at snap, by one who has the reader's access. Errors: those of the
// access.
func (r *rows) init(ctx context.Context, t *Tablet, snap uint64, f *table.Program, of *reader) (err error) {
	r.schema = t.schema.Load()
	var sight Sight
	if a := of.access; a != nil {
		if sight, err = a.Read(ctx, r.schema.table); err != nil {
			return err
		}
	}
	r.want.init(f, r.schema, sight)
	r.want.eval = &of.eval
	r.judge.init(t.server.gcNow(), snap)
	r.limit = t.server.cfg.RowReadBytesMax
	r.end, r.err, r.ctx, r.read, r.key = nil, nil, ctx, 0, r.key[:0]
	r.most, r.paused = nil, false
	r.gate = t.server.large
	return nil
}

// Range is the rows of a scan: Start <= row < End, where nil is no bound.
type Range struct{ Start, End []byte }

// passed says whether no row at or after key is in the range.
func (rg *Range) passed(key []byte) bool { return rg.End != nil && string(key) >= string(rg.End) }

// Scan reads rows in order through f, where nil passes every cell, and calls emit
// for each row of which anything is left. It returns nil when the range is
// finished, or the key at which the scan goes on when emit or most, which may be nil, ends it. Rows are
// whole and consistent each by itself, not with each other. Rows that were emitted
// count for nothing if there is an error but the one below. Errors: as ReadRow.
//
// A scan that comes to a row which is not served here ends with api.ErrNotServing and
// that row as next: what was emitted before is all that there is before it.
func (as For) Scan(ctx context.Context, tableName string, rg Range, f *table.Program, most *Most, emit Emit) (next []byte, err error) {
	var sc *schema // of the first tablet: while it is current it is that of all
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
	inside, passed := false, false // whether it goes on within a tablet, and has passed one
	for !rg.passed(rg.Start) {
		if err := s.provable(); err != nil {
			return nil, err
		}
		if passed && ctx.Err() != nil {
			return nil, fmt.Errorf("scan: %w", context.Cause(ctx))
		}
		if passed && (most.over() || most != nil && r.eval.Tired()) {
			return rg.Start, nil
		}
		t, err := as.tabletOf(ctx, tableName, rg.Start)
		if errors.Is(err, api.ErrNotServing) {
			if most != nil {
				most.Inside = inside
			}
			return append([]byte{}, rg.Start...), err
		}
		if err != nil {
			return nil, err
		}
		next, err := r.scan(ctx, t, rg, f, most, emit)
		if err == errGone && ctx.Err() == nil {
			continue // nothing was read, and what is served in its place is in the tables
		}
		if sc == nil && err != errGone {
			sc, as.table = r.rows.schema, t.table
			if most != nil {
				most.Table = t.table
			}
		}
		if lacksRoom(err) {
			if err = r.rows.awaitRoom(ctx); err == nil {
				if next != nil {
					rg.Start, inside = next, true
				}
				continue
			}
		}
		if err == nil {
			err = s.provable()
		}
		if err != nil {
			return nil, err
		}
		if next != nil || len(t.end) == 0 {
			return next, nil
		}
		rg.Start, inside, passed = append(bytes.Clone(t.end), 0), false, true
	}
	return nil, nil
}

// scan reads the part of a range that is in t. With errNoRoom it returns the key of the row for which there is none, if it has
// come to one.
func (r *reader) scan(ctx context.Context, t *Tablet, rg Range, f *table.Program, most *Most, emit Emit) ([]byte, error) {
	v, snap, err := t.acquire()
	if err != nil {
		return nil, err
	}
	defer v.release()
	rs := &r.rows
	if err := rs.init(ctx, t, snap, f, r); err != nil {
		return nil, err
	}
	if rs.most = most; most != nil {
		most.Partly = most.Partly || !rs.want.sight.all()
	}
	r.row = r.row[:0]
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
	rs.sourcesOf(v, nil, sstable.IterOptions{Gate: rs})
	defer rs.closeSources()
	rs.merge.reset(rs.sources)
	rs.merge.seekGE(r.row)
	for {
		key, ok := rs.next()
		if rs.paused {
			return bytes.Clone(ikey.RowKey(rs.key)), nil
		}
		if lacksRoom(rs.err) && len(rs.key) > 0 {
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
