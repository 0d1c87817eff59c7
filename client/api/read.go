package api

import (
	"bytes"
	"math"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// ReadRequest holds the parameters of read:
//
//	[table, row, options?]    options: filter, row_bytes, position
type ReadRequest struct {
	TableOptions
	Table string
	Row   []byte
	// Filter is a filter as encoded by table.AppendFilter; empty means none. A node caches compiled
	// filters by these bytes.
	Filter []byte
	// RowBytes bounds the result of RowMemory for a row: larger ones are a RowTooLargeError with that
	// limit. 0 means unset: only ResultBytesMax applies.
	RowBytes int64
	// Position reports whether the result has a RowPosition.
	Position bool

	names names
}

// RowPosition is where the state of a row that was read is in the table's change stream. The result of a read with it is:
//
//	[row or nil, next, families, start]
type RowPosition struct {
	// Next is a position: the state has all changes of the row before it, and no later ones.
	Next uint64
	// Families is the version of the table's families by which the row was read, as in a ChangesResult.
	Families uint64
	// Start is a row: the position is one of the rows after it, up to the row that was read. Empty means no bound.
	Start []byte
}

// Append encodes a result. row encodes the row in it.
func (p *RowPosition) Append(e *wire.Encoder, row func()) {
	e.Array(4)
	row()
	e.Uint(p.Next)
	e.Uint(p.Families)
	e.Bin(p.Start)
}

// Decode decodes a result. row decodes the row in it.
func (p *RowPosition) Decode(d *wire.Decoder, row func() error) error {
	n := d.Array()
	if err := row(); err != nil {
		return err
	}
	p.Next, p.Families, p.Start = d.Uint(), d.Uint(), bytes.Clone(d.Bytes())
	for range n - 4 {
		d.Skip()
	}
	if d.Err() == nil && (n < 4 || p.Next == 0 || p.Next > math.MaxInt64) {
		return malformed("%d values of a row with position %d", n, p.Next)
	}
	return d.Err()
}

// Append encodes the parameters.
func (r *ReadRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + present(r.Filter) + set(r.RowBytes)
	if r.Position {
		n++
	}
	e.Array(2 + min(n, 1))
	e.Str(r.Table)
	e.Bin(r.Row)
	r.TableOptions.append(e, n)
	appendFilter(e, r.Filter)
	appendCount(e, rowBytes, r.RowBytes)
	if r.Position {
		e.Str("position")
		e.Bool(true)
	}
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *ReadRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodRead, n, 2, 3); err != nil {
		return err
	}
	r.Table, r.Row, r.Filter = r.names.table(d), d.Bytes(), nil
	r.RowBytes, r.Position = 0, false
	if err := checkRow(d, r.Row, lim); err != nil {
		return err
	}
	if err := r.TableOptions.decode(d, n > 2, r); err != nil {
		return err
	}
	return checkFilter(r.Filter, lim)
}

func (r *ReadRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "filter":
		r.Filter = rawFilter(d)
	case rowBytes:
		r.RowBytes = countOption(d, rowBytes)
	case "position":
		r.Position = d.Bool()
	default:
		return r.TableOptions.option(key, d)
	}
	return true
}

// ReadRowsRequest holds the parameters of read_rows:
//
//	[table, [row…], options?]    options: filter, row_bytes
type ReadRowsRequest struct {
	TableOptions
	Table  string
	Rows   [][]byte
	Filter []byte // as in ReadRequest
	// RowBytes bounds each row, as in ReadRequest.
	RowBytes int64

	names names
}

// Append encodes the parameters.
func (r *ReadRowsRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + present(r.Filter) + set(r.RowBytes)
	e.Array(2 + min(n, 1))
	e.Str(r.Table)
	e.Array(len(r.Rows))
	for _, row := range r.Rows {
		e.Bin(row)
	}
	r.TableOptions.append(e, n)
	appendFilter(e, r.Filter)
	appendCount(e, rowBytes, r.RowBytes)
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *ReadRowsRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodReadRows, n, 2, 3); err != nil {
		return err
	}
	r.Table, r.Rows, r.Filter = r.names.table(d), reuse(r.Rows), nil
	r.RowBytes = 0
	rows := d.Array()
	if err := within("rows to read", rows, ReadRowsMax); err != nil {
		return err
	}
	for i := range rows {
		row := d.Bytes()
		if err := checkRow(d, row, lim); err != nil {
			return &table.ElementError{What: "row", Index: i, Err: err}
		}
		r.Rows = append(r.Rows, row)
	}
	if err := r.TableOptions.decode(d, n > 2, r); err != nil {
		return err
	}
	return checkFilter(r.Filter, lim)
}

func (r *ReadRowsRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "filter":
		r.Filter = rawFilter(d)
	case rowBytes:
		r.RowBytes = countOption(d, rowBytes)
	default:
		return r.TableOptions.option(key, d)
	}
	return true
}

// checkRow checks a row key that d has just read.
func checkRow(d *wire.Decoder, row []byte, lim *table.Limits) error {
	if err := d.Err(); err != nil {
		return err
	}
	return lim.CheckRowKey(row)
}

// rowBytes is the option RowBytes.
const rowBytes = "row_bytes"

// cellMemory is the memory of a decoded cell without its names, value and labels.
const cellMemory = 96

// RowMemory returns an estimate of the memory that a client uses for a row with cells, when it has
// decoded them.
func RowMemory(cells []table.Cell) (n int64) {
	for i := range cells {
		c := &cells[i]
		n += cellMemory + int64(len(c.Family)+len(c.Qualifier)+len(c.Value))
		for _, l := range c.Labels {
			n += int64(len(l))
		}
	}
	return n
}

// CheckRowCells returns an error if the row that d is at has so many cells that it exceeds limit, a RowBytes; 0 means no bound. A node does not send such a row.
func CheckRowCells(d wire.Decoder, limit int64) error {
	if limit <= 0 || d.Peek() != wire.KindArray {
		return nil
	}
	d.Array()
	d.Skip()
	if n := int64(d.Array()); n*cellMemory > limit {
		return malformed("a row of %d cells, over the requested limit of %d bytes", n, limit)
	}
	return nil
}

// CheckRowBytes returns a *RowTooLargeError if a row with cells exceeds limit, a RowBytes.
func CheckRowBytes(cells []table.Cell, limit int64) error {
	if limit > 0 && RowMemory(cells) > limit {
		return &RowTooLargeError{Limit: limit}
	}
	return nil
}

// set returns 1 if an option is set.
func set(n int64) int {
	if n != 0 {
		return 1
	}
	return 0
}

func present(filter []byte) int { return min(len(filter), 1) }

func appendFilter(e *wire.Encoder, filter []byte) {
	if len(filter) > 0 {
		e.Str("filter")
		e.Raw(filter)
	}
}

// rawFilter returns the bytes of a filter; nil means none.
func rawFilter(d *wire.Decoder) []byte {
	if d.IsNil() {
		return nil
	}
	return d.Raw()
}

// nodeBytes is about the most that a filter node takes on the wire, without patterns, bounds and
// names.
const nodeBytes = 64

// checkFilter rejects filters that are far too large before they are cached or compiled.
// Compilation checks the exact limits.
func checkFilter(filter []byte, lim *table.Limits) error {
	lim = limitsOf(lim)
	limit := lim.FilterBytes + nodeBytes*lim.FilterNodes
	if err := within("filter bytes", len(filter), limit); err != nil {
		return &table.FilterError{Path: "filter", Err: err}
	}
	return nil
}

// AppendRow encodes a row as reads return it, [key, [cell…]]. A row without cells does not exist
// and is encoded as nil.
func AppendRow(e *wire.Encoder, key []byte, cells []table.Cell) {
	if len(cells) == 0 {
		e.Nil()
		return
	}
	table.AppendRow(e, key, cells)
}
