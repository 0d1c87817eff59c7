package api

import (
	"bytes"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TabletRequest holds the parameters of the methods about one tablet. split_tablet, merge_tablets
// and compact_tablet take
//
//	[table, row, options?]          options: id, of split_tablet: middle, of compact_tablet: major
//
// and move_tablet takes
//
//	[table, row, node, options?]    options: id
//
// The tablet is the one that holds the row, or the table's tablet with that id.
type TabletRequest struct {
	Options
	Table string
	Row   []byte
	ID    uint64 // 0 means unset: Row selects the tablet
	Node  string // move_tablet: id or name of the destination
	// Middle is for split_tablet: the tablet is split at about half of its bytes, not at Row.
	Middle bool
	Major  bool // compact_tablet: a major compaction, not only of the memtables
}

// own returns the flag that is specific to the method, or nil if it has none.
func (r *TabletRequest) own(method string) *flag {
	switch method {
	case MethodSplitTablet:
		return &flag{"middle", &r.Middle}
	case MethodCompactTablet:
		return &flag{"major", &r.Major}
	}
	return nil
}

// tabletOptions decodes the options of one method.
type tabletOptions struct {
	*TabletRequest
	own *flag
}

func (o tabletOptions) option(key []byte, d *wire.Decoder) bool {
	if string(key) == "id" {
		o.ID = uint64(countOption(d, "id"))
		return true
	}
	return o.own != nil && o.own.option(key, d)
}

// AppendAs encodes the parameters of a method.
func (r *TabletRequest) AppendAs(method string, e *wire.Encoder) {
	n := r.Options.count()
	own := r.own(method)
	if r.ID != 0 {
		n++
	}
	if own != nil && *own.value {
		n++
	}
	params := 2
	if method == MethodMoveTablet {
		params++
	}
	e.Array(params + min(n, 1))
	e.Str(r.Table)
	e.Bin(r.Row)
	if method == MethodMoveTablet {
		e.Str(r.Node)
	}
	r.Options.append(e, n)
	if r.ID != 0 {
		e.Str("id")
		e.Uint(r.ID)
	}
	if own != nil && *own.value {
		e.Str(own.key)
		e.Bool(true)
	}
}

// Decode decodes the n parameters in d of a method. A nil lim means the defaults.
func (r *TabletRequest) Decode(d *wire.Decoder, n int, method string, lim *table.Limits) error {
	want := 2
	if method == MethodMoveTablet {
		want++
	}
	if err := params(method, n, want, want+1); err != nil {
		return err
	}
	*r = TabletRequest{Table: d.Str(), Row: bytes.Clone(optionalBytes(d))}
	if method == MethodMoveTablet {
		r.Node = d.Str()
	}
	if err := r.Options.decode(d, n > want, tabletOptions{r, r.own(method)}); err != nil {
		return err
	}
	if r.ID != 0 && len(r.Row) > 0 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: give a row or a tablet id, not both", method)
	}
	// Rows of METADATA have longer keys.
	return within("row key bytes", len(r.Row), limitsOf(lim).RowKeyBytes+1)
}

// TabletChange is the result of split_tablet, move_tablet and merge_tablets.
type TabletChange struct {
	ID     uint64 // of the upper part of a split, or of the merged tablet
	Lower  uint64 // split_tablet: id of the lower part
	At     []byte // split_tablet: its last row
	Node   string // the id of the node to which the tablet is assigned
	Server string // the instance of its tablet server
}

func (t *TabletChange) fields() fields {
	return fields{{"id", &t.ID}, {"lower", &t.Lower}, {"at", &t.At}, {"node", &t.Node}, {"server", &t.Server}}
}

// Append encodes the result.
func (t *TabletChange) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode decodes the result.
func (t *TabletChange) Decode(d *wire.Decoder) error {
	*t = TabletChange{}
	return t.fields().decode(d)
}

// ClearRowsRequest holds the parameters of clear_rows:
//
//	[table, start, end, options?]
//
// The rows are Start <= row < End; nil or an empty bound means none.
type ClearRowsRequest struct {
	Options
	Table      string
	Start, End []byte
}

// Append encodes the parameters.
func (r *ClearRowsRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(3 + min(n, 1))
	e.Str(r.Table)
	e.Bin(r.Start)
	e.Bin(r.End)
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d. A nil lim means the defaults. The error is a *rpc.Error of rpc.CodeBadRequest if the range has no
// rows.
func (r *ClearRowsRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodClearRows, n, 3, 4); err != nil {
		return err
	}
	*r = ClearRowsRequest{Table: d.Str(), Start: bytes.Clone(optionalBytes(d)), End: bytes.Clone(optionalBytes(d))}
	if err := r.Options.decode(d, n > 3, nil); err != nil {
		return err
	}
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) >= 0 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: the range ends at or before its start", MethodClearRows)
	}
	// A key between two rows may be one byte longer.
	return within("row key bytes", max(len(r.Start), len(r.End)), limitsOf(lim).RowKeyBytes+1)
}
