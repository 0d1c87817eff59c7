package api

import (
	"github.com/steledb/stele/internal/wire"
)

// DroppedTablesMax is the number of dropped tables that are kept. Beyond it, the oldest are deleted before their time.
const DroppedTablesMax = 1000

// DroppedRequest holds the parameters of undrop_table and purge_table:
//
//	[table, options?]    options: id, of undrop_table: as
type DroppedRequest struct {
	Options
	// Table is the name that the table had.
	Table string
	// ID distinguishes dropped tables of one name; 0 if there is one.
	ID uint64
	// As is the name that the table gets; empty: that which it had.
	As string
}

// AppendAs encodes the parameters of a method.
func (r *DroppedRequest) AppendAs(method string, e *wire.Encoder) {
	n := r.Options.count()
	as := method == MethodUndropTable && r.As != ""
	if r.ID != 0 {
		n++
	}
	if as {
		n++
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Table)
	r.Options.append(e, n)
	if r.ID != 0 {
		e.Str("id")
		e.Uint(r.ID)
	}
	if as {
		e.Str("as")
		e.Str(r.As)
	}
}

// droppedOptions decodes the options of one method.
type droppedOptions struct {
	*DroppedRequest
	method string
}

func (o droppedOptions) option(key []byte, d *wire.Decoder) bool {
	switch {
	case string(key) == "id":
		o.ID = uint64(countOption(d, "id"))
	case string(key) == "as" && o.method == MethodUndropTable:
		o.As = textOption(d, "as")
	default:
		return false
	}
	return true
}

// Decode decodes the n parameters in d of a method.
func (r *DroppedRequest) Decode(d *wire.Decoder, n int, method string) error {
	if err := params(method, n, 1, 2); err != nil {
		return err
	}
	*r = DroppedRequest{Table: d.Str()}
	return r.Options.decode(d, n > 1, droppedOptions{r, method})
}

// DroppedTable describes a dropped table that is kept.
type DroppedTable struct {
	Name string `json:"name"` // that it had
	ID   uint64 `json:"id"`
	// DroppedMS and GoneMS are in ms since 1970: when it was dropped, and when it is deleted.
	DroppedMS int64 `json:"dropped_ms"`
	GoneMS    int64 `json:"gone_ms"`
	Tablets   int64 `json:"tablets"`
	Bytes     int64 `json:"bytes"` // of its files; backups may use them too
}

func (t *DroppedTable) fields() fields {
	return fields{{"name", &t.Name}, {"id", &t.ID}, {"dropped_ms", &t.DroppedMS}, {"gone_ms", &t.GoneMS}, {"tablets", &t.Tablets}, {"bytes", &t.Bytes}}
}

// DroppedTables is the result of list_dropped_tables, in order of names and ids.
type DroppedTables struct{ Tables []DroppedTable }

func (t *DroppedTables) fields() fields {
	return fields{{"tables", &list[DroppedTable]{all: &t.Tables, fields: (*DroppedTable).fields, what: "dropped tables", max: 2 * DroppedTablesMax}}}
}

// Append encodes the result.
func (t *DroppedTables) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode decodes the result.
func (t *DroppedTables) Decode(d *wire.Decoder) error {
	*t = DroppedTables{}
	return t.fields().decode(d)
}
