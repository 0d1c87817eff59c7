package tablet

import (
	"bytes"
	"context"
	"fmt"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// rows reads a view row by row: it merges the sources, applies deletions and GC
// policies, and leaves out what the reader said that it does not want.
type rows struct {
	merge   merge
	sources []source
	mems    []*memSource    // those of sources, used again
	iters   []*sstable.Iter // those of sources, to be closed
	judge   judge
	schema  *schema
	want    want
	limit   int64 // bytes of cells that one row may have
	end     []byte

	// key is the prefix of the entry's key that was last split: row part, family
	// part, column part, which end at the offsets.
	key                 []byte
	rowEnd, familyEnd   int
	family              *family
	familyFull, rowFull uint64 // deletion of the family, the row; 0: none

	// The row that next found.
	cells []table.Cell
	bytes int64

	quals    []byte // memory of the row's qualifiers
	versions []version
	target   []byte
	err      error

	ctx  context.Context // of the read at hand, which lasts no longer
	read int             // rows, wanted or not
}

// checkRows is how many rows are read before the reader looks whether its time
// is up.
const checkRows = 256

// skipNexts is how many entries are stepped over before a seek: a seek costs
// about as much as so many steps.
const skipNexts = 6

// next goes to the next row that has a cell, and returns its key, or false at the
// end of the range or on an error. Key and cells are valid until the next call;
// the values of the cells stay valid.
func (r *rows) next() ([]byte, bool) {
	for r.err == nil && r.merge.valid() {
		key := r.merge.key()
		if r.end != nil && bytes.Compare(key, r.end) >= 0 {
			return nil, false
		}
		n := ikey.RowLen(key)
		if n < 0 {
			r.err = ikey.ErrBadKey
			break
		}
		r.key, r.rowEnd = append(r.key[:0], key[:n]...), n
		r.cells, r.quals, r.bytes = r.cells[:0], r.quals[:0], 0
		if r.read++; r.read%checkRows == 0 && r.ctx.Err() != nil {
			r.err = fmt.Errorf("read rows: %w", context.Cause(r.ctx))
			break
		}
		row := ikey.RowKey(r.key)
		if !r.want.row(row) {
			r.skip(r.key)
			continue
		}
		r.readRow()
		if len(r.cells) > 0 && r.err == nil {
			return row, true
		}
	}
	if r.err == nil {
		r.err = r.merge.err
	}
	return nil, false
}

// readRow collects the cells of the row whose part is in key.
func (r *rows) readRow() {
	r.rowFull = 0
	for r.merge.valid() && r.err == nil {
		key := r.merge.key()
		if !bytes.HasPrefix(key, r.key[:r.rowEnd]) {
			return
		}
		if r.full() {
			r.skip(r.key[:r.rowEnd])
			return
		}
		p, err := ikey.SplitAfterRow(key, r.rowEnd)
		if err != nil {
			r.err = err
			return
		}
		if p.Kind == ikey.KindDeleteRow {
			if seq := ikey.Seq(key); seq <= r.judge.snap {
				r.rowFull = max(r.rowFull, seq)
			}
			r.merge.next()
			continue
		}
		part := key[p.Row:p.Family]
		r.family = r.schema.familyOf(ikey.FamilyName(part), ikey.FamilyID(part))
		r.key, r.familyEnd = append(r.key[:r.rowEnd], part...), p.Family
		if r.family == nil || !r.want.family(r.family) {
			r.skip(r.key)
			continue
		}
		r.readFamily()
	}
}

// readFamily collects the cells of the family whose part is in key.
func (r *rows) readFamily() {
	r.familyFull = r.rowFull
	for r.merge.valid() && r.err == nil {
		key := r.merge.key()
		if !bytes.HasPrefix(key, r.key[:r.familyEnd]) || r.full() {
			return
		}
		p, err := ikey.SplitAfterFamily(key, r.rowEnd, r.familyEnd)
		if err != nil {
			r.err = err
			return
		}
		if p.Kind == ikey.KindDeleteFamily {
			if seq := ikey.Seq(key); seq <= r.judge.snap {
				r.familyFull = max(r.familyFull, seq)
			}
			r.merge.next()
			continue
		}
		r.key = append(r.key[:r.familyEnd], key[p.Family:p.Column]...)
		switch where := r.want.qualifier(ikey.Qualifier(r.key[r.familyEnd:])); {
		case where < 0:
			r.target = ikey.AppendColumn(append(r.target[:0], r.key[:r.familyEnd]...), r.want.hints.Qualifiers.Start.Value)
			if bytes.HasPrefix(key, r.target) { // the open end of the range
				r.skip(r.target)
			} else {
				r.skipTo(r.target)
			}
		case where > 0:
			r.skip(r.key[:r.familyEnd])
		default:
			r.readColumn()
		}
	}
}

// readColumn collects the cells of the column whose key part is in key.
func (r *rows) readColumn() {
	r.judge.column(&r.family.policy, r.familyFull)
	qualifier, kept := []byte(nil), 0
	for r.merge.valid() && r.err == nil {
		key := r.merge.key()
		if !bytes.HasPrefix(key, r.key) {
			return
		}
		seq := ikey.Seq(key)
		if ikey.IsDeleteColumn(key, len(r.key)) {
			start, end, err := ikey.Range(r.merge.value())
			if err != nil {
				r.err = err
				return
			}
			r.judge.delete(start, end, seq)
			r.merge.next()
			continue
		}
		if r.judge.needsHistory() {
			r.readHistory()
			return
		}
		ts := ikey.Timestamp(key)
		switch r.judge.version(ts, seq) {
		case rest:
			r.skip(r.key)
			return
		case live:
			if ts < r.want.hints.Start {
				r.skip(r.key)
				return
			}
			if end := r.want.hints.End; end != 0 && ts >= end {
				break
			}
			if qualifier == nil {
				qualifier = r.keepQualifier()
			}
			r.keep(qualifier, ts, r.merge.value())
			if kept++; kept == r.want.hints.MaxVersions || r.full() {
				r.skip(r.key)
				return
			}
		}
		r.merge.next()
	}
}

// readHistory is readColumn for a column that must be judged as a whole.
func (r *rows) readHistory() {
	r.versions = r.versions[:0]
	held := int64(0)
	for r.merge.valid() {
		key := r.merge.key()
		if !bytes.HasPrefix(key, r.key) {
			break
		}
		v := version{ts: ikey.Timestamp(key), seq: ikey.Seq(key), value: r.merge.value()}
		if held += int64(len(v.value)) + versionBytes; held > r.limit {
			r.tooLarge(held)
			return
		}
		r.versions = append(r.versions, v)
		r.merge.next()
	}
	r.judge.settle(r.versions)
	qualifier, kept := r.keepQualifier(), 0
	for i := range r.versions {
		v := &r.versions[i]
		h := &r.want.hints
		if v.verdict != live || v.ts < h.Start || h.End != 0 && v.ts >= h.End {
			continue
		}
		r.keep(qualifier, v.ts, v.value)
		if kept++; kept == h.MaxVersions || r.full() {
			break
		}
	}
	clear(r.versions)
}

// versionBytes and cellBytes are what a version and a cell take beside their
// contents, in bytes.
const (
	versionBytes = 96
	cellBytes    = 104
)

// full says that the row has all the cells that matter.
func (r *rows) full() bool {
	n := r.want.hints.MaxCells
	return n > 0 && len(r.cells) >= n
}

func (r *rows) keepQualifier() []byte {
	q := ikey.Qualifier(r.key[r.familyEnd:])
	start := len(r.quals)
	r.quals = append(r.quals, q...)
	return r.quals[start:len(r.quals):len(r.quals)]
}

func (r *rows) keep(qualifier []byte, ts int64, value []byte) {
	r.bytes += int64(len(qualifier)+len(value)) + cellBytes
	if r.bytes > r.limit {
		r.tooLarge(r.bytes)
		return
	}
	r.cells = append(r.cells, table.Cell{Family: r.family.Name, Qualifier: qualifier, Timestamp: ts, Value: value})
}

func (r *rows) tooLarge(got int64) {
	r.err = &table.LimitError{What: "row bytes of one read (ask for fewer columns or versions)", Limit: r.limit, Got: got}
}

// skip goes past the entries whose keys start with prefix.
func (r *rows) skip(prefix []byte) {
	for range skipNexts {
		if !r.merge.valid() || !bytes.HasPrefix(r.merge.key(), prefix) {
			return
		}
		r.merge.next()
	}
	r.target = ikey.AppendAfter(r.target[:0], prefix)
	r.merge.advanceTo(r.target)
}

// skipTo goes to the first entry at or above target.
func (r *rows) skipTo(target []byte) {
	for range skipNexts {
		if !r.merge.valid() || bytes.Compare(r.merge.key(), target) >= 0 {
			return
		}
		r.merge.next()
	}
	r.merge.advanceTo(target)
}
