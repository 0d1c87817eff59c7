package api

import (
	"bytes"
	"cmp"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// ScanOpenRequest holds the parameters of scan_open:
//
//	[table, options?]    options: start, end, prefix, filter, limit, batch_rows, batch_bytes, parts, reversed, rows, stats, row_bytes
type ScanOpenRequest struct {
	TableOptions
	Table string
	// Start and End limit the rows to [Start, End); empty means unbounded. Prefix limits them
	// further to keys with that prefix.
	Start, End, Prefix []byte
	Filter             []byte // as in ReadRequest
	Limit              int64  // in rows; 0 means unset: no limit
	BatchRows          int    // 0 means unset: ScanBatchRows
	BatchBytes         int    // 0 means unset: ScanBatchBytes
	// Parts means that the caller continues on other nodes when the scan reaches the end of what
	// the node serves: see ScanResult.
	Parts bool
	// Reversed means that the rows are read from the last to the first.
	Reversed bool
	// Rows limits the rows further to those of a set; nil means all.
	Rows *table.RowSet
	// Stats means that results have ScanStats.
	Stats bool
	// RowBytes bounds each row, as in ReadRequest. The error comes in place of a batch that would begin with the row.
	RowBytes int64

	names names
}

// Append encodes the parameters.
func (r *ScanOpenRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + present(r.Start) + present(r.End) + present(r.Prefix) + present(r.Filter)
	for _, v := range []int64{r.Limit, int64(r.BatchRows), int64(r.BatchBytes), r.RowBytes} {
		n += set(v)
	}
	for _, is := range []bool{r.Parts, r.Reversed, r.Stats} {
		if is {
			n++
		}
	}
	if r.Rows != nil {
		n++
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Table)
	r.TableOptions.append(e, n)
	appendBytes(e, "start", r.Start)
	appendBytes(e, "end", r.End)
	appendBytes(e, "prefix", r.Prefix)
	appendFilter(e, r.Filter)
	appendCount(e, "limit", r.Limit)
	appendCount(e, "batch_rows", int64(r.BatchRows))
	appendCount(e, "batch_bytes", int64(r.BatchBytes))
	appendSet(e, "parts", r.Parts)
	appendSet(e, "reversed", r.Reversed)
	appendSet(e, "stats", r.Stats)
	appendCount(e, rowBytes, r.RowBytes)
	if r.Rows != nil {
		e.Str("rows")
		table.AppendRowSet(e, r.Rows)
	}
}

// appendSet writes an option that is true.
func appendSet(e *wire.Encoder, key string, set bool) {
	if set {
		e.Str(key)
		e.Bool(true)
	}
}

// Decode decodes the n parameters in d. It sets unset BatchRows and BatchBytes to their defaults
// and reduces larger values to the maximum. A nil lim means the defaults.
func (r *ScanOpenRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodScanOpen, n, 1, 2); err != nil {
		return err
	}
	*r = ScanOpenRequest{Table: r.Table, names: r.names}
	r.Table = r.names.table(d)
	if err := r.TableOptions.decode(d, n > 1, r); err != nil {
		return err
	}
	lim = limitsOf(lim)
	for _, key := range [][]byte{r.Start, r.End, r.Prefix} {
		if err := within("row key bytes", len(key), lim.RowKeyBytes+1); err != nil {
			return err
		}
	}
	r.BatchRows = cmp.Or(r.BatchRows, ScanBatchRows)
	r.BatchBytes = cmp.Or(r.BatchBytes, ScanBatchBytes)
	return checkFilter(r.Filter, lim)
}

func (r *ScanOpenRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "start":
		r.Start = optionalBytes(d)
	case "end":
		r.End = optionalBytes(d)
	case "prefix":
		r.Prefix = optionalBytes(d)
	case "filter":
		r.Filter = rawFilter(d)
	case "limit":
		r.Limit = countOption(d, "limit")
	case "batch_rows":
		r.BatchRows = int(min(countOption(d, "batch_rows"), ScanBatchRowsMax))
	case "batch_bytes":
		r.BatchBytes = int(min(countOption(d, "batch_bytes"), ScanBatchBytesMax))
	case "parts":
		r.Parts = d.Bool()
	case "reversed":
		r.Reversed = d.Bool()
	case "stats":
		r.Stats = d.Bool()
	case rowBytes:
		r.RowBytes = countOption(d, rowBytes)
	case "rows":
		r.Rows = rowSetOption(d)
	default:
		return r.TableOptions.option(key, d)
	}
	return true
}

// rowSetOption reads a set of rows, or nil for all rows.
func rowSetOption(d *wire.Decoder) *table.RowSet {
	if d.IsNil() {
		return nil
	}
	set, err := table.DecodeRowSet(d)
	if err != nil && d.Err() == nil {
		d.Fail(err)
	}
	return set
}

// Range returns the combination of Start, End and Prefix as [start, end), where an empty end means
// unbounded. empty reports whether the range contains no row. The slices may alias the request.
func (r *ScanOpenRequest) Range() (start, end []byte, empty bool) {
	start, end = r.Start, r.End
	if bytes.Compare(r.Prefix, start) > 0 {
		start = r.Prefix
	}
	if last := PrefixEnd(r.Prefix); last != nil && (len(end) == 0 || bytes.Compare(last, end) < 0) {
		end = last
	}
	return start, end, len(end) > 0 && bytes.Compare(start, end) >= 0
}

// PrefixEnd returns the first key after all keys with that prefix. It returns nil if there is none:
// for an empty prefix or one of 0xff bytes only.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// lastRow is above all rows.
var lastRow = bytes.Repeat([]byte{0xff}, int(defaultLimits.RowKeyBytes)+1)

// LastRow returns a row that is in the same tablet as the last possible row below end: that row itself if
// there is a last one, and otherwise end. An empty end means no end; then it returns a key above all rows. The
// result must not be changed.
func LastRow(end []byte) []byte {
	n := len(end) - 1
	if n < 0 {
		return lastRow
	}
	if end[n] == 0 {
		return end[:n]
	}
	return end
}

// ScanNextRequest holds the parameters of scan_next and of scan_close:
//
//	[cursor, options?]
type ScanNextRequest struct {
	Options
	Cursor uint64
}

// Append encodes the parameters.
func (r *ScanNextRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(1 + min(n, 1))
	e.Uint(r.Cursor)
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d.
func (r *ScanNextRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodScanNext, n, 1, 2); err != nil {
		return err
	}
	r.Cursor = d.Uint()
	return r.Options.decode(d, n > 1, nil)
}

// ScanWriter encodes the result of scan_open and scan_next row by row:
//
//	{"rows": [row…], "cursor": uint | nil, "next": bytes | nil, "stats": {…}}
type ScanWriter struct {
	e     *wire.Encoder
	mark  int
	rows  int
	cells int64
	stats bool
	seen  ScanStats
}

// ScanStats are counts of a batch of a scan. If the caller may not see the whole table, what was seen is
// what was returned.
type ScanStats struct {
	RowsSeen      int64 // examined, or requested by key and not found
	RowsReturned  int64
	CellsSeen     int64 // examined; cells that the filter cannot pass are skipped where possible
	CellsReturned int64
}

// Add adds the counts of another batch.
func (s *ScanStats) Add(o *ScanStats) {
	s.RowsSeen += o.RowsSeen
	s.RowsReturned += o.RowsReturned
	s.CellsSeen += o.CellsSeen
	s.CellsReturned += o.CellsReturned
}

func (s *ScanStats) fields() fields {
	return fields{{"rows_seen", &s.RowsSeen}, {"rows_returned", &s.RowsReturned}, {"cells_seen", &s.CellsSeen}, {"cells_returned", &s.CellsReturned}}
}

// BeginScan starts a result in e.
func BeginScan(e *wire.Encoder) ScanWriter {
	e.Map(3)
	e.Str("rows")
	return ScanWriter{e: e, mark: e.ReserveArray32()}
}

// BeginScanWithStats is BeginScan for a result with ScanStats.
func BeginScanWithStats(e *wire.Encoder) ScanWriter {
	e.Map(4)
	e.Str("rows")
	return ScanWriter{e: e, mark: e.ReserveArray32(), stats: true}
}

// Seen sets the counts of what was examined. At least what was returned was.
func (w *ScanWriter) Seen(rows, cells int64) { w.seen.RowsSeen, w.seen.CellsSeen = rows, cells }

// Row adds a row, which must have cells.
func (w *ScanWriter) Row(key []byte, cells []table.Cell) {
	table.AppendRow(w.e, key, cells)
	w.rows++
	w.cells += int64(len(cells))
}

// Rows returns the number of rows so far.
func (w *ScanWriter) Rows() int { return w.rows }

// Bytes returns the size of the result so far.
func (w *ScanWriter) Bytes() int { return w.e.Len() - w.mark }

// End completes the result. next is the row key at which the scan continues, or below which if it is
// reversed: with the cursor or, if that is 0, on another node. If both are empty, the scan is finished.
func (w *ScanWriter) End(cursor uint64, next []byte) {
	w.e.SetArray32(w.mark, w.rows)
	w.e.Str("cursor")
	if cursor == 0 {
		w.e.Nil()
	} else {
		w.e.Uint(cursor)
	}
	w.e.Str("next")
	if cursor == 0 && len(next) == 0 {
		w.e.Nil()
	} else {
		w.e.Bin(next)
	}
	if w.stats {
		s := &w.seen
		s.RowsReturned, s.CellsReturned = int64(w.rows), w.cells
		s.RowsSeen, s.CellsSeen = max(s.RowsSeen, s.RowsReturned), max(s.CellsSeen, s.CellsReturned)
		w.e.Str("stats")
		s.fields().append(w.e)
	}
}

// ScanResult is the result of scan_open and scan_next.
type ScanResult struct {
	Rows  wire.Decoder // at the first of Count rows
	Count int
	// Cursor is 0 if the node has no more rows for the scan. The scan is finished if Next is empty
	// as well.
	Cursor uint64
	// Next is the row key at which the scan continues. A reversed scan continues with the rows below it, or
	// with all if it is empty. Without a Cursor, which happens in scans by Parts, it continues with a new
	// scan_open on the server of that row, or of LastRow of it.
	Next []byte
	// Stats are the counts of the batch, if they were requested.
	Stats ScanStats
}

// Decode decodes what a ScanWriter wrote. The result aliases the input; the caller reads the rows
// later from Rows.
func (r *ScanResult) Decode(d *wire.Decoder) error {
	*r = ScanResult{}
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "rows":
			r.Rows = wire.NewDecoder(d.Raw())
			r.Count = r.Rows.Array()
		case "cursor":
			if !d.IsNil() {
				r.Cursor = d.Uint()
			}
		case "next":
			r.Next = optionalBytes(d)
		case "stats":
			if err := r.Stats.fields().decode(d); err != nil {
				return err
			}
		default:
			d.Skip()
		}
	}
	if err := d.Err(); err != nil {
		return err
	}
	return r.Rows.Err()
}
