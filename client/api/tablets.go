package api

import (
	"bytes"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TabletRequest is the parameters of the methods about one tablet: split_tablet,
// merge_tablets and compact_tablet take
//
//	[table, row, options?]          options: id, of split_tablet: middle, of compact_tablet: major
//
// and move_tablet takes
//
//	[table, row, node, options?]    options: id
//
// The tablet is the one that has the row, or the table's tablet of an id.
type TabletRequest struct {
	Options
	Table string
	Row   []byte
	ID    uint64 // 0 is none; then Row says which
	Node  string // move_tablet: id or name of the node that is to have it
	// Middle is split_tablet's: the tablet is parted where its bytes are about even, not at Row.
	Middle bool
	Major  bool // compact_tablet: a major compaction, and not only the memtables
}

// own returns the flag that a method has of its own, nil for none.
func (r *TabletRequest) own(method string) *flag {
	switch method {
	case MethodSplitTablet:
		return &flag{"middle", &r.Middle}
	case MethodCompactTablet:
		return &flag{"major", &r.Major}
	}
	return nil
}

// tabletOptions reads the options of one method.
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

// AppendAs writes the parameters of a method.
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

// Decode reads the n parameters in d of a method. A nil lim is the defaults.
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
		return rpc.Errorf(rpc.CodeBadRequest, "%s: a tablet is named by a row or by its id, not by both", method)
	}
	// Rows of METADATA have longer keys.
	return within("row key bytes", len(r.Row), limitsOf(lim).RowKeyBytes+1)
}

// TabletChange is the result of split_tablet, move_tablet and merge_tablets.
type TabletChange struct {
	ID     uint64 // of the tablet: of the upper part of a split, and what a merge made
	Lower  uint64 // split_tablet: id of the lower part
	At     []byte // split_tablet: its last row
	Node   string // the id of the node that has the tablet
	Server string // the instance of its tablet server
}

func (t *TabletChange) fields() fields {
	return fields{{"id", &t.ID}, {"lower", &t.Lower}, {"at", &t.At}, {"node", &t.Node}, {"server", &t.Server}}
}

// Append writes the result.
func (t *TabletChange) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode reads the result.
func (t *TabletChange) Decode(d *wire.Decoder) error {
	*t = TabletChange{}
	return t.fields().decode(d)
}
