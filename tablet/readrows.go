package tablet

import (
	"bytes"
	"context"
	"fmt"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// EmitNth is Emit of the nth row that was asked for.
type EmitNth func(n int, key []byte, cells []table.Cell) error

// ReadRows reads rows one after another, each as ReadRow does, and calls emit in their order for those of which
// anything is left. Rows that were emitted count for nothing if there is an error; at is where it came up. Rows
// that follow each other closely in the table are read as a scan reads them, which costs a third. Errors: those of
// ReadRow, ErrAccessChanged.
func (as For) ReadRows(ctx context.Context, tableName string, keys [][]byte, f *table.Program, emit EmitNth) (at int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	s := as.s
	var sc *schema // of the first tablet: while it is current it is that of all
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
		if lacksRoom(err) {
			err = r.rows.awaitRoom(ctx)
		}
		if err != nil && (err != errGone || ctx.Err() != nil) { // what is served in its place is in the tables
			return at, err
		}
	}
	at = len(keys) - 1
	if err := s.provable(); err != nil {
		return at, err
	}
	if changed(as.a) || !sc.current() {
		return at, ErrAccessChanged
	}
	return at, nil
}

// adjacentTries is how often it is tried to read rows as a scan, which costs a seek in each file, and is paid
// back by the rows that follow closely; adjacentLeast are those that must be left to be read, in order.
const (
	adjacentTries = 2
	adjacentLeast = 4
)

// readRowsOf reads those of keys, from the one at from on, that are in t, and returns how many these are.
func (r *reader) readRowsOf(ctx context.Context, t *Tablet, keys [][]byte, from int, f *table.Program, emit EmitNth) (n int, err error) {
	v, snap, err := t.acquire()
	if err != nil {
		return 0, err
	}
	defer v.release()
	rs := &r.rows
	if err := rs.init(ctx, t, snap, f, r); err != nil {
		return 0, err
	}
	defer rs.closeSources()
	scans, found, tries := false, false, adjacentTries // scans: the sources are those of a scan
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

// ascend tells whether the first of the keys are in order, as those of rows that are neighbours.
func ascend(keys [][]byte) bool {
	const first = 8
	for i := 1; i < min(len(keys), first); i++ {
		if bytes.Compare(keys[i-1], keys[i]) >= 0 {
			return false
		}
	}
	return true
}

// near goes on to target, if that takes but a few steps, and tells whether it did.
func (r *rows) near(target []byte) bool {
	for range skipNexts {
		if r.err == nil && !r.merge.valid() {
			r.err = r.merge.err // nil: nothing is behind the last entry
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

// seekTo readies r for a row: its part of the key, and where that ends.
func (r *reader) seekTo(row []byte) {
	r.row = ikey.AppendRow(r.row[:0], row)
	r.end = ikey.AppendRowEnd(r.end[:0], row)
	r.rows.end = r.end
}

// seekPoint merges the sources that have something of the row that seekTo was called for, and goes to it.
func (r *reader) seekPoint(v *view, row []byte) {
	rs := &r.rows
	p := point{key: row, row: r.row}
	if fam, qualifier, ok := rs.want.oneColumn(rs.schema); ok {
		r.col = ikey.AppendColumn(ikey.AppendFamily(append(r.col[:0], r.row...), fam.Name, fam.ID), qualifier)
		p.column = r.col
	}
	rs.sourcesOf(v, &p, sstable.IterOptions{Gate: rs})
	rs.merge.reset(rs.sources)
	rs.merge.seekGE(r.row)
}
