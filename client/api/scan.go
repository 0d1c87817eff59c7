package api

import (
	"bytes"
	"cmp"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// ScanOpenRequest is the parameters of scan_open:
//
//	[table, options?]    options: start, end, prefix, filter, limit, batch_rows, batch_bytes, parts
type ScanOpenRequest struct {
	TableOptions
	Table string
	// Start and End bound the rows to [Start, End). Empty is no bound. Prefix
	// bounds them further to keys that begin with it.
	Start, End, Prefix []byte
	Filter             []byte // as in ReadRequest
	Limit              int64  // rows; 0 is not given: no limit
	BatchRows          int    // 0 is not given: ScanBatchRows
	BatchBytes         int    // 0 is not given: ScanBatchBytes
	// Parts says that the caller goes on elsewhere when the scan has come to the end of
	// what the node serves: see ScanResult.
	Parts bool

	names names
}

// Append writes the parameters.
func (r *ScanOpenRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + present(r.Start) + present(r.End) + present(r.Prefix) + present(r.Filter)
	for _, v := range []int64{r.Limit, int64(r.BatchRows), int64(r.BatchBytes)} {
		if v != 0 {
			n++
		}
	}
	if r.Parts {
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
	if r.Parts {
		e.Str("parts")
		e.Bool(true)
	}
}

// Decode reads the n parameters in d, fills in BatchRows and BatchBytes if they are not
// given, and brings them below their largest. A nil lim is the defaults.
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
	default:
		return r.TableOptions.option(key, d)
	}
	return true
}

// Range returns what Start, End and Prefix amount to: [start, end), where an empty
// end is no bound. Empty is true when no row can be in it. The slices may alias
// the request.
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

// PrefixEnd returns the first key after all that begin with prefix; nil if there
// is none, as for a prefix of nothing or of 0xff bytes.
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

// ScanNextRequest is the parameters of scan_next and of scan_close:
//
//	[cursor, options?]
type ScanNextRequest struct {
	Options
	Cursor uint64
}

// Append writes the parameters.
func (r *ScanNextRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(1 + min(n, 1))
	e.Uint(r.Cursor)
	r.Options.append(e, n)
}

// Decode reads the n parameters in d.
func (r *ScanNextRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodScanNext, n, 1, 2); err != nil {
		return err
	}
	r.Cursor = d.Uint()
	return r.Options.decode(d, n > 1, nil)
}

// ScanWriter writes the result of scan_open and scan_next row by row:
//
//	{"rows": [row…], "cursor": uint | nil, "next": bytes | nil}
type ScanWriter struct {
	e    *wire.Encoder
	mark int
	rows int
}

// BeginScan starts a result in e.
func BeginScan(e *wire.Encoder) ScanWriter {
	e.Map(3)
	e.Str("rows")
	return ScanWriter{e: e, mark: e.ReserveArray32()}
}

// Row adds a row. Rows without cells are not to be added.
func (w *ScanWriter) Row(key []byte, cells []table.Cell) {
	table.AppendRow(w.e, key, cells)
	w.rows++
}

// Rows returns the number of rows so far, Bytes about the size of the result.
func (w *ScanWriter) Rows() int { return w.rows }

// Bytes returns the size of the result so far.
func (w *ScanWriter) Bytes() int { return w.e.Len() - w.mark }

// End completes the result. Next is the row key at which the scan goes on, by the
// cursor or, if that is 0, elsewhere; without both it is finished.
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
}

// ScanResult is what scan_open and scan_next return.
type ScanResult struct {
	Rows  wire.Decoder // at the first of Count rows
	Count int
	// Cursor is 0 when the scan has nothing more to get from the node: it is finished
	// if there is no Next either.
	Cursor uint64
	// Next is the row key at which it goes on. Without a Cursor, which happens in scans by
	// Parts, that is at the server of that row, with another scan_open.
	Next []byte
}

// Decode reads what a ScanWriter wrote. All of it aliases the input; the rows are
// read later, by Rows.
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
		default:
			d.Skip()
		}
	}
	if err := d.Err(); err != nil {
		return err
	}
	return r.Rows.Err()
}
