package tablet

import (
	"bytes"
	"context"
	"fmt"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// EmitNth is Emit for the nth requested row.
type EmitNth func(n int, key []byte, cells []table.Cell) error

// ReadRows reads rows one after another, each like ReadRow, and calls emit in the same order for
// those of which any cell is left. On error, the emitted rows must be discarded, and at is the
// index where it occurred. Rows that are close together in the table are read like a scan, at a
// third of the cost. Errors: those of ReadRow, ErrAccessChanged.
func (as For) ReadRows(ctx context.Context, tableName string, keys [][]byte, f *table.Program, emit EmitNth) (at int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	s := as.s
	var sc *schema // of the first tablet; while it is current, all tablets have the same
	if as.a != nil {
		as.a.Begin()
	}
	r := readerPool.Get().(*reader)
	defer r.release()
	r.begin(as)
	r.rows.yields = true
	s.stats.reads.Add(int64(len(keys)))
	for at < len(keys) {
		if at > 0 && ctx.Err() != nil {
			return at, fmt.Errorf("read rows: %w", context.Cause(ctx))
		}
		if err := s.limits.CheckRowKey(keys[at]); err != nil {
			return at, err
		}
		t, err := as.tabletOf(ctx, tableName, keys[at])
		if err != nil {
			return at, err
		}
		n, err := r.readRowsOf(ctx, t, keys, at, f, emit)
		at += n
		if sc == nil && err != errGone {
			sc = r.rows.schema
		}
		if lacksMemory(err) {
			err = r.rows.awaitMemory(ctx)
		}
		if err != nil && (err != errGone || ctx.Err() != nil) { // its replacement is in the tables
			return at, err
		}
	}
	at = len(keys) - 1
	if err := s.checkServing(); err != nil {
		return at, err
	}
	if changed(as.a) || !sc.current() {
		return at, ErrAccessChanged
	}
	return at, nil
}

// adjacentTries bounds the attempts to read rows as a scan. An attempt costs a seek in each file,
// which pays off if the next rows are close. adjacentLeast is the number of remaining rows, in
// order, that an attempt requires.
const (
	adjacentTries = 2
	adjacentLeast = 4
)

// readRowsOf reads the keys from index from on, as far as they are in t, and returns their number.
func (r *reader) readRowsOf(ctx context.Context, t *Tablet, keys [][]byte, from int, f *table.Program, emit EmitNth) (n int, err error) {
	v, err := r.open(ctx, t, f)
	if err != nil {
		return 0, err
	}
	defer v.release()
	rs := &r.rows
	defer rs.closeSources()
	// scans: the sources are those of a scan
	scans, found, tries := false, false, adjacentTries
	for ; from+n < len(keys); n++ {
		left := keys[from+n:]
		if n > 0 {
			if !t.holds(left[0]) || t.server.limits.CheckRowKey(left[0]) != nil {
				return n, nil
			}
			if ctx.Err() != nil {
				return n, fmt.Errorf("read rows: %w", context.Cause(ctx))
			}
			t.load.note(left[0])
		}
		r.seekTo(left[0])
		if scans && (bytes.Compare(left[0], keys[from+n-1]) <= 0 || !rs.near(r.row)) {
			rs.closeSources()
			scans = false
		}
		switch {
		case rs.err != nil:
			return n, rs.err
		case scans:
			tries = adjacentTries
		case found && tries > 0 && len(left) >= adjacentLeast && ascend(keys[from+n-1:]):
			scans, tries = true, tries-1
			rs.sourcesOf(v, nil, sstable.IterOptions{Gate: rs})
			rs.merge.reset(rs.sources)
			rs.merge.seekGE(r.row)
		default:
			r.seekPoint(v, left[0])
		}
		key, ok := rs.next()
		if found = ok; !ok && rs.err != nil {
			return n, rs.err
		}
		var cells []table.Cell
		if ok {
			if cells, err = r.filtered(f, key); err != nil {
				return n, err
			}
		}
		r.noteRead(left[0], ok)
		if !scans {
			rs.keepEntries(r.row)
		}
		if len(cells) > 0 {
			if err := emit(from+n, key, cells); err != nil {
				return n, err
			}
		}
		if scans {
			rs.emitted()
		} else {
			rs.closeSources()
		}
	}
	return n, nil
}

// ascend reports whether the first few keys are in order, as those of neighbouring rows are.
func ascend(keys [][]byte) bool {
	const first = 8
	for i := 1; i < min(len(keys), first); i++ {
		if bytes.Compare(keys[i-1], keys[i]) >= 0 {
			return false
		}
	}
	return true
}

// near steps to target if that takes only a few steps, and reports whether it did.
func (r *rows) near(target []byte) bool {
	for range skipNexts {
		if r.err == nil && !r.merge.valid() {
			r.err = r.merge.err // nil at the end
		}
		if r.err != nil {
			return false
		}
		if !r.merge.valid() || bytes.Compare(r.merge.key(), target) >= 0 {
			return true
		}
		r.step()
	}
	return false
}

// seekTo sets r to a row: its part of the key, and the end of that.
func (r *reader) seekTo(row []byte) {
	r.row = ikey.AppendRow(r.row[:0], row)
	r.end = ikey.AppendRowEnd(r.end[:0], row)
	r.rows.end = r.end
}

// seekPoint merges the sources that may hold the row set by seekTo, and seeks to it.
func (r *reader) seekPoint(v *view, row []byte) {
	rs := &r.rows
	p := point{key: row, row: r.row}
	if fam, qualifier, ok := rs.selection.oneColumn(rs.schema); ok {
		r.col = ikey.AppendColumn(ikey.AppendFamily(append(r.col[:0], r.row...), fam.Name, fam.ID), qualifier)
		p.column = r.col
	}
	rs.sourcesOf(v, &p, sstable.IterOptions{Gate: rs})
	rs.merge.reset(rs.sources)
	rs.merge.seekGE(r.row)
}

// scanSet reads the part of a row set that is in t. It returns as scan. Rows that are close together are read like a
// range, as by ReadRows.
func (r *reader) scanSet(ctx context.Context, t *Tablet, v *view, rg Range, f *table.Program, most *ScanBounds, emit Emit) ([]byte, error) {
	rs, near := &r.rows, nearRows{tries: adjacentTries}
	i, step := rg.Rows.First(rg.Start), 1
	if rg.Reversed {
		i, step = rg.Rows.Last(rg.End), -1
	}
	for begun := false; i >= 0 && i < rg.Rows.Len(); i, begun = i+step, true {
		piece := rg.piece(i)
		if piece.Reversed = rg.Reversed; t.endsBefore(&piece) {
			return nil, nil
		}
		if begun {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("scan rows: %w", context.Cause(ctx))
			}
			if most.over() || most != nil && most.reached() {
				return bytes.Clone(piece.Next()), nil
			}
		}
		rs.key, rs.inRow = rs.key[:0], false
		key, point := rg.Rows.Key(i)
		near.left = rg.Rows.Len() - i
		next, err := r.scanPiece(t, v, &near, &piece, key, point, f, most, emit)
		if lacksMemory(err) && next == nil {
			next = bytes.Clone(piece.Next())
		}
		if next != nil || err != nil {
			return next, err
		}
		if point && len(rs.key) == 0 {
			most.missed()
		}
	}
	return nil, nil
}

// endsBefore reports whether a range has no rows in t or in the tablets before it, in the direction of the range.
func (t *Tablet) endsBefore(rg *Range) bool {
	switch {
	case rg.empty():
		return true
	case rg.Reversed:
		return len(t.start) > 0 && rg.End != nil && bytes.Compare(rg.End, append(t.start[:len(t.start):len(t.start)], 0)) <= 0
	}
	return len(t.end) > 0 && bytes.Compare(rg.Start, t.end) > 0
}

// nearRows is whether the rows of a set are read from the sources of a scan, because they are close together.
type nearRows struct {
	scans bool // the sources are those of a scan
	found bool // the last range had a row
	tries int  // to read further rows in this way
	left  int  // ranges of the set
}

// scanPiece reads a range of a set, or its row with a key. It returns as scan.
func (r *reader) scanPiece(t *Tablet, v *view, n *nearRows, piece *Range, key []byte, point bool, f *table.Program, most *ScanBounds, emit Emit) ([]byte, error) {
	rs := &r.rows
	if point {
		r.seekTo(key)
	} else {
		r.setBounds(t, *piece)
	}
	switch {
	case piece.Reversed:
		rs.closeSources()
		if !point {
			return r.scanBack(t, v, *piece, f, most, emit)
		}
		r.seekPoint(v, key)
	case n.scans && rs.near(r.row):
		n.tries = adjacentTries
	case rs.err != nil:
		return nil, rs.err
	case n.scans && !point:
		rs.advance(r.row)
	default:
		rs.closeSources()
		if n.scans = !point || n.found && n.tries > 0 && n.left >= adjacentLeast; n.scans {
			n.tries--
			r.startForward(v)
		} else {
			r.seekPoint(v, key)
		}
	}
	next, err := r.scanForward(f, most, emit)
	n.found = len(rs.key) > 0
	if point && !n.scans && next == nil && err == nil {
		rs.keepEntries(r.row)
	}
	if piece.Reversed && next != nil {
		next = turned(key, next)
	}
	return next, err
}

// turned returns where a reversed scan continues if a forward one of a single row would continue at next.
func turned(key, next []byte) []byte {
	if string(next) == string(key) { // the row was not read
		return append(bytes.Clone(key), 0)
	}
	return bytes.Clone(key)
}

// missed counts a row of a set that does not exist.
func (m *ScanBounds) missed() {
	if m == nil {
		return
	}
	if m.begun = true; !m.Partly {
		m.Looked++
	}
}
