package api

import (
	"cmp"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// MutateRequest holds the parameters of mutate:
//
//	[table, row, [mutation…], options?]
//
// The option token is [id, start].
type MutateRequest struct {
	TableOptions
	Table string
	Row   table.RowMutation

	names    names
	tokenErr error
}

// Append encodes the parameters.
func (r *MutateRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count()
	if r.Row.Token != nil {
		n++
	}
	e.Array(3 + min(n, 1))
	e.Str(r.Table)
	e.Bin(r.Row.Row)
	table.AppendMutations(e, r.Row.Mutations)
	r.TableOptions.append(e, n)
	if r.Row.Token != nil {
		e.Str("token")
		table.AppendToken(e, r.Row.Token)
	}
}

// Decode decodes the n parameters in d. A nil lim means the defaults. It checks only what costs
// memory; table.RowMutation.Validate checks the rest.
func (r *MutateRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodMutate, n, 3, 4); err != nil {
		return err
	}
	r.Table = r.names.table(d)
	r.Row.Row, r.Row.Token, r.tokenErr = d.Bytes(), nil, nil
	var err error
	r.Row.Mutations, err = table.DecodeMutations(d, reuse(r.Row.Mutations), r.names.families(), lim)
	if err != nil {
		return err
	}
	return cmp.Or(r.TableOptions.decode(d, n > 3, r), r.tokenErr)
}

func (r *MutateRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) == "token" {
		r.Row.Token, r.tokenErr = table.DecodeToken(d)
		return true
	}
	return r.TableOptions.option(key, d)
}

// AppendTimestamp encodes the result of mutate: the server's timestamp, or nil if it is 0, which
// means that none was assigned.
func AppendTimestamp(e *wire.Encoder, timestamp int64) {
	if timestamp == 0 {
		e.Nil()
		return
	}
	e.Int(timestamp)
}

// DecodeTimestamp decodes what AppendTimestamp writes.
func DecodeTimestamp(d *wire.Decoder) int64 {
	if d.IsNil() {
		return 0
	}
	return d.Int()
}

// MutateRowsRequest holds the parameters of mutate_rows:
//
//	[table, [[row, [mutation…], token?]…], options?]
type MutateRowsRequest struct {
	TableOptions
	Table string
	Rows  []table.RowMutation

	names    names
	retained int // capacity, in mutations, that Rows retains from the last request
}

// Append encodes the parameters.
func (r *MutateRowsRequest) Append(e *wire.Encoder) {
	r.AppendEach(e, len(r.Rows), func(i int) *table.RowMutation { return &r.Rows[i] })
}

// AppendEach is Append for n rows that are not in Rows; row returns the i-th.
func (r *MutateRowsRequest) AppendEach(e *wire.Encoder, n int, row func(i int) *table.RowMutation) {
	opts := r.TableOptions.count()
	e.Array(2 + min(opts, 1))
	e.Str(r.Table)
	e.Array(n)
	for i := range n {
		table.AppendRowMutation(e, row(i))
	}
	r.TableOptions.append(e, opts)
}

// Decode decodes the n parameters in d. A nil lim means the defaults. It checks only what costs
// memory; table.RowMutation.Validate checks the rest.
func (r *MutateRowsRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodMutateRows, n, 2, 3); err != nil {
		return err
	}
	if r.retained > retainedMax {
		r.Rows = nil
	}
	r.Table = r.names.table(d)
	if err := r.decodeRows(d, lim); err != nil {
		return err
	}
	return r.TableOptions.decode(d, n > 2, r)
}

// decodeRows decodes the rows.
func (r *MutateRowsRequest) decodeRows(d *wire.Decoder, lim *table.Limits) error {
	r.Rows, r.retained = reuse(r.Rows), 0
	rows := d.Array()
	if err := within("rows in a batch", rows, limitsOf(lim).BatchRows); err != nil {
		return err
	}
	for i := range rows {
		if i < cap(r.Rows) {
			r.Rows = r.Rows[:i+1] // with the memory of its former mutations
		} else {
			r.Rows = append(r.Rows, table.RowMutation{})
		}
		row := &r.Rows[i]
		if err := table.DecodeRowMutation(d, row, r.names.families(), lim); err != nil {
			return &table.ElementError{What: "row", Index: i, Err: err}
		}
		r.retained += cap(row.Mutations)
		if err := within("mutations in a batch", r.retained, BatchMutationsMax); err != nil {
			return err
		}
	}
	return nil
}
