package tablet

import (
	"bytes"
	"context"
	"fmt"

	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/gcpolicy"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
	"github.com/steledb/stele/tablet/tombstone"
)

// rows reads a view row by row. It merges the sources, applies deletions and GC policies, and
// leaves out what the read does not select.
type rows struct {
	merge     merge
	sources   []source
	mems      []*memSource    // those of sources, reused
	iters     []*sstable.Iter // those of sources, to be closed
	cached    []*sstable.EntriesIter
	judge     gcpolicy.Judge
	schema    *schema
	selection selection
	cleared   tombstone.List // of the view
	limit     int64          // bytes of cells that one row may have
	end       []byte

	// Of a reversed scan: its lower bound, the upper bound of the current row, and whether that row is not
	// finished yet.
	back     backward
	start    []byte
	rowLimit []byte
	inRow    bool

	// key is the prefix of the current entry's key: row part, family part, column part, which end
	// at the offsets.
	key                 []byte
	rowEnd, familyEnd   int
	family              *family
	familyFull, rowFull uint64 // sequence numbers of the deletions of the family and the row; 0: none

	// The row that next returned.
	cells []table.Cell
	bytes int64

	folding  table.Fold
	quals    []byte // buffer of the row's qualifiers
	versions []gcpolicy.Version
	values   [][]byte // those of versions
	target   []byte
	err      error

	gate     *budget.Large
	reserved int64 // bytes reserved in gate
	covered  int64 // bytes of cells that the reservation covers
	yields   bool  // start over instead of waiting for memory
	lacking  int   // bytes of cells for which there was no memory
	turns    Turns // of the caller; may be nil

	trace *trace.Record // of the operation; may be nil
	work  work          // since it was last reported

	ctx  context.Context // of the current read
	read int             // work since ctx was last checked, in entries
	seen int64           // cells that the read has examined

	most   *ScanBounds // bounds of a scan; may be nil
	paused bool        // next stopped before the row of key because a bound was reached
}

// work is what a read has looked at.
type work struct {
	files, skipped, cached int // SSTables: read, ruled out by filters, found in the scan cache
	reads                  sstable.Reads
}

func (w *work) add(r sstable.Reads) {
	w.reads.Blocks, w.reads.Missed, w.reads.Took = w.reads.Blocks+r.Blocks, w.reads.Missed+r.Missed, w.reads.Took+r.Took
	if w.reads.Began.IsZero() {
		w.reads.Began = r.Began
	}
}

// report adds the work of the read since the last report to its trace.
func (r *rows) report() {
	if r.trace == nil {
		return
	}
	for _, it := range r.iters {
		r.work.add(it.TakeReads())
	}
	w := &r.work
	r.trace.Count(trace.Files, w.files)
	r.trace.Count(trace.FilesSkipped, w.skipped)
	r.trace.Count(trace.FilesCached, w.cached)
	r.trace.Count(trace.Blocks, w.reads.Blocks)
	r.trace.Count(trace.BlocksMissed, w.reads.Missed)
	r.trace.Add(trace.Disk, w.reads.Began, w.reads.Took, w.reads.Missed)
	r.work = work{}
}

// checkEntries is the number of entries after which a reader checks ctx and its deadline. It counts
// entries, selected or not, since a single row may have millions. A row counts as rowEntries for
// its own cost, and a seek as seekEntries, as it may have to read a block.
const (
	checkEntries = 4096
	rowEntries   = 16
	seekEntries  = 64
)

// skipNexts is the number of entries that are stepped over before a seek: a seek costs about as
// much as so many steps.
const skipNexts = 6

// next advances to the next row that has a cell and returns its key. It returns false at the end of
// the range, when it has paused, or on an error. Key and cells are valid until the next call; cell
// values stay valid.
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
		if r.most != nil && (r.most.begun && r.selection.eval.Tired() || r.most.enough()) {
			r.paused = true
			return nil, false
		}
		if r.worked(rowEntries); r.err != nil {
			break
		}
		row := ikey.RowKey(r.key)
		wanted, err := r.selection.row(row)
		if err != nil {
			r.err = err
			break
		}
		if !wanted {
			if !r.skipHidden(row) {
				break
			}
			continue
		}
		r.rowFull = 0
		if len(r.cleared) > 0 {
			r.rowFull = r.cleared.Of(row)
		}
		r.readRow()
		if r.err == nil {
			r.err = r.merge.err // the row may continue where reading failed
		}
		if len(r.cells) > 0 && r.err == nil {
			return row, true
		}
	}
	if r.err == nil {
		r.err = r.merge.err
	}
	return nil, false
}

// skipHidden skips a row without selected cells, and those behind it that the caller may not see. It returns false if no other row is left.
func (r *rows) skipHidden(row []byte) bool {
	if next := r.selection.visible.Next; next != nil {
		to, ok := next(row)
		if !ok {
			return false
		}
		if bytes.Compare(to, row) > 0 {
			r.target = ikey.AppendRow(r.target[:0], to)
			r.skipTo(r.target)
			return true
		}
	}
	r.skip(r.key)
	return true
}

// readRow collects the cells of the row whose part is in key, and which was deleted at rowFull or later.
func (r *rows) readRow() {
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
			if seq := ikey.Seq(key); r.judge.IsVisible(seq) {
				r.rowFull = max(r.rowFull, seq)
			}
			r.step()
			continue
		}
		part := key[p.Row:p.Family]
		r.family = r.selection.familyOf(r.schema, part)
		r.key, r.familyEnd = append(r.key[:r.rowEnd], part...), p.Family
		if r.family == nil {
			r.skip(r.key)
			continue
		}
		r.readFamily()
	}
}

// readFamily collects the cells of the family whose part is in key.
func (r *rows) readFamily() {
	r.familyFull = r.rowFull
	if r.family == tokenFamily {
		r.familyFull = r.cleared.Of(ikey.RowKey(r.key[:r.rowEnd])) // deletions of rows leave tokens
	}
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
			if seq := ikey.Seq(key); r.judge.IsVisible(seq) {
				r.familyFull = max(r.familyFull, seq)
			}
			r.step()
			continue
		}
		r.key = append(r.key[:r.familyEnd], key[p.Family:p.Column]...)
		if seen := r.selection.visible.Column; seen != nil && !seen(r.family.index, ikey.Qualifier(r.key[r.familyEnd:])) {
			r.skip(r.key)
			continue
		}
		switch where := r.selection.qualifier(ikey.Qualifier(r.key[r.familyEnd:])); {
		case where < 0:
			r.target = ikey.AppendColumn(append(r.target[:0], r.key[:r.familyEnd]...), r.selection.hints.Qualifiers.Start.Value)
			if bytes.HasPrefix(key, r.target) { // open lower bound
				r.skip(r.target)
			} else {
				r.skipTo(r.target)
			}
		case where > 0:
			r.skip(r.key[:r.familyEnd])
		case p.Kind == ikey.KindOperand || r.family.Aggregate != table.AggregateNone:
			r.readAggregate()
		default:
			r.readColumn()
		}
	}
}

// readColumn collects the cells of the column whose key part is in key.
func (r *rows) readColumn() {
	r.judge.BeginColumn(&r.family.policy, r.familyFull)
	qualifier, kept := []byte(nil), 0
	for r.merge.valid() && r.err == nil {
		key := r.merge.key()
		if !bytes.HasPrefix(key, r.key) {
			return
		}
		seq := ikey.Seq(key)
		if ikey.IsDeleteColumn(key, len(r.key)) {
			r.readDeletion(seq)
			continue
		}
		if r.judge.NeedsHistory() {
			r.readHistory()
			return
		}
		r.seen++
		ts := ikey.Timestamp(key)
		switch r.judge.Next(ts, seq) {
		case gcpolicy.Rest:
			r.skip(r.key)
			return
		case gcpolicy.Live:
			if ts < r.selection.hints.Start {
				r.skip(r.key)
				return
			}
			if end := r.selection.hints.End; end != 0 && ts >= end {
				break
			}
			if qualifier == nil {
				qualifier = r.keepQualifier()
			}
			r.keep(qualifier, ts, r.merge.value())
			if kept++; kept == r.selection.hints.MaxVersions || r.full() {
				r.skip(r.key)
				return
			}
		}
		r.step()
	}
}

// readDeletion passes the deletion of versions at the current entry to the judge.
func (r *rows) readDeletion(seq uint64) {
	start, end, err := ikey.Range(r.merge.value())
	if err != nil {
		r.err = err
		return
	}
	r.judge.Delete(start, end, seq)
	if held := int64(r.judge.Ranges()) * rangeBytes; held > r.limit {
		r.tooLarge(held)
		return
	}
	r.step()
}

// readAggregate is readColumn for a column of operands: the cell of a timestamp is the fold of its operands (T14). A plain family with
// operands is corrupt.
func (r *rows) readAggregate() {
	if r.family.Aggregate == table.AggregateNone {
		r.err = ikey.ErrBadKey
		return
	}
	r.judge.BeginColumn(&r.family.policy, r.familyFull)
	qualifier, kept := []byte(nil), 0
	var cell foldedCell
	defer r.finish(&cell)
	for r.merge.valid() && r.err == nil {
		key := r.merge.key()
		if !bytes.HasPrefix(key, r.key) {
			return
		}
		seq := ikey.Seq(key)
		if ikey.IsDeleteColumn(key, len(r.key)) {
			r.readDeletion(seq)
			continue
		}
		if !ikey.IsOperand(key, len(r.key)) {
			r.err = ikey.ErrBadKey
			return
		}
		if r.judge.NeedsHistory() {
			r.readHistory()
			return
		}
		r.seen++
		ts, h := ikey.Timestamp(key), &r.selection.hints
		switch r.judge.Next(ts, seq) {
		case gcpolicy.Rest:
			r.skip(r.key)
			return
		case gcpolicy.Merged:
			r.fold(&cell, r.merge.value())
		case gcpolicy.Live:
			if r.finish(&cell); ts < h.Start || kept > 0 && (kept == h.MaxVersions || r.full()) {
				r.skip(r.key)
				return
			}
			if h.End != 0 && ts >= h.End {
				break
			}
			if qualifier == nil {
				qualifier = r.keepQualifier()
			}
			r.keep(qualifier, ts, r.merge.value())
			kept, cell.kept = kept+1, true
		}
		r.step()
	}
}

// foldedCell is the state of the cell whose operands are being read.
type foldedCell struct {
	kept   bool // it is the last of the row's cells, and not left out
	folded bool // its value is that of r.folding, until finish
}

// fold folds an operand into the last cell, unless that is left out.
func (r *rows) fold(cell *foldedCell, operand []byte) {
	if !cell.kept || r.err != nil || r.merge.err != nil {
		return
	}
	if !cell.folded {
		cell.folded = true
		if r.err = r.folding.Begin(r.family.Aggregate, r.cells[len(r.cells)-1].Value); r.err != nil {
			return
		}
	}
	if r.err = r.folding.Add(operand); r.err == nil {
		r.err = r.holdRow(r.bytes + int64(r.folding.Bytes()))
		r.worked(len(operand) / foldedBytes)
	}
}

// foldedBytes is the number of bytes of an operand whose folding takes as long as an entry: a sketch of 20 KiB takes about 200 µs.
const foldedBytes = 64

// finish gives the cell the value of its operands. The next cell is not there yet.
func (r *rows) finish(cell *foldedCell) {
	folded := cell.folded && r.err == nil && r.merge.err == nil
	if *cell = (foldedCell{}); !folded {
		return
	}
	last := &r.cells[len(r.cells)-1]
	r.bytes -= int64(len(last.Value))
	last.Value = r.folding.Value()
	if r.bytes += int64(len(last.Value)); r.bytes > r.limit {
		r.tooLarge(r.bytes)
		return
	}
	r.err = r.holdRow(r.bytes)
}

// readHistory is readColumn or readAggregate for a column that must be judged as a whole.
func (r *rows) readHistory() {
	r.versions, r.values = r.versions[:0], r.values[:0]
	defer r.dropHistory()
	held := int64(r.judge.Ranges()) * rangeBytes
	for r.merge.valid() {
		key := r.merge.key()
		if !bytes.HasPrefix(key, r.key) {
			break
		}
		value := r.merge.value()
		if held += int64(len(value)) + versionBytes; held > r.limit {
			r.tooLarge(held)
			return
		}
		if r.err = r.holdRow(r.bytes + held); r.err != nil {
			return
		}
		r.seen++
		r.versions = append(r.versions, gcpolicy.Version{Timestamp: ikey.Timestamp(key), Seq: ikey.Seq(key)})
		r.values = append(r.values, value)
		if r.step(); r.err != nil {
			return
		}
	}
	if err := r.judge.Settle(r.ctx, r.versions); err != nil {
		r.err = fmt.Errorf("read rows: %w", err)
		return
	}
	r.keepSettled()
}

// keepSettled collects the cells of versions.
func (r *rows) keepSettled() {
	qualifier, kept, h := r.keepQualifier(), 0, &r.selection.hints
	var cell foldedCell
	defer r.finish(&cell)
	for i := range r.versions {
		v := &r.versions[i]
		if v.Verdict == gcpolicy.Merged {
			r.fold(&cell, r.values[i])
			continue
		}
		if v.Verdict != gcpolicy.Live {
			continue
		}
		if r.finish(&cell); v.Timestamp < h.Start || h.End != 0 && v.Timestamp >= h.End {
			continue
		}
		if kept > 0 && (kept == h.MaxVersions || r.full()) || r.err != nil {
			break
		}
		r.keep(qualifier, v.Timestamp, r.values[i])
		kept, cell.kept = kept+1, true
	}
}

// dropHistory drops the values that readHistory collected, and large buffers for them, since
// readers are pooled.
func (r *rows) dropHistory() {
	const keep = 1024
	clear(r.values)
	if cap(r.values) > keep {
		r.values, r.versions = nil, nil
	}
}

// versionBytes, rangeBytes and cellBytes are the memory of a version, a deleted range of versions
// and a cell without their contents, in bytes.
const (
	versionBytes = 104
	rangeBytes   = 104
	cellBytes    = 104
)

// full reports whether the row has all the cells that the filter can use.
func (r *rows) full() bool {
	n := r.selection.hints.MaxCells
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
	if err := r.holdRow(r.bytes); err != nil {
		r.err = err
		return
	}
	r.cells = append(r.cells, table.Cell{Family: r.family.Name, Qualifier: qualifier, Timestamp: ts, Value: value})
}

func (r *rows) tooLarge(got int64) {
	r.err = &table.LimitError{What: "row bytes of one read (ask for fewer columns or versions)", Limit: r.limit, Got: got}
}

// step advances to the next entry.
func (r *rows) step() {
	r.merge.next()
	r.worked(1)
}

// worked records work equivalent to n entries, and checks ctx and the deadline every checkEntries.
func (r *rows) worked(n int) {
	if r.read += n; r.read < checkEntries {
		return
	}
	r.read = 0
	if r.err == nil && r.ctx.Err() != nil {
		r.err = fmt.Errorf("read rows: %w", context.Cause(r.ctx))
	}
	if r.most != nil {
		r.most.checkTime()
	}
}

// skip advances past the entries whose keys start with prefix.
func (r *rows) skip(prefix []byte) {
	for range skipNexts {
		if r.err != nil || !r.merge.valid() || !bytes.HasPrefix(r.merge.key(), prefix) {
			return
		}
		r.step()
	}
	r.target = ikey.AppendAfter(r.target[:0], prefix)
	r.advance(r.target)
}

// skipTo advances to the first entry at or above target, by steps if it is near.
func (r *rows) skipTo(target []byte) {
	for range skipNexts {
		if r.err != nil || !r.merge.valid() || bytes.Compare(r.merge.key(), target) >= 0 {
			return
		}
		r.step()
	}
	r.advance(target)
}

// advance seeks to the first entry at or above target.
func (r *rows) advance(target []byte) {
	r.merge.advanceTo(target)
	r.worked(seekEntries)
}
