package client

import (
	"context"
	"errors"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Get reads one row. It returns nil if there is no such row, or if the options
// leave no cell of it. The row is the caller's.
//
// Errors: ErrNoTable, table.ErrBadRowKey, what is wrong with an option,
// *RowTooLargeError, *CorruptError; after retries, those of a node that cannot be
// reached or does not serve; ctx's.
func (t *Table) Get(ctx context.Context, row string, opts ...ReadOption) (*table.Row, error) {
	k := getCalls.Get().(*getCall)
	defer k.release()
	if len(opts) > 0 {
		o := readOptionsOf(opts)
		if o.err != nil {
			return nil, o.err
		}
		k.req.Filter = encodeFilter(o.filter())
	}
	k.req.Table, k.call.table = t.name, t.name
	k.req.Row = append(k.req.Row, row...)
	k.call.row = k.req.Row
	if err := t.client.do(ctx, &k.call); err != nil {
		return nil, err
	}
	return k.row, nil
}

// getCall is a call of read, with all that it needs in one piece of memory.
type getCall struct {
	call  call
	req   api.ReadRequest
	names *table.Interner
	row   *table.Row
}

// namesKept is how many names of families and labels a decoder remembers.
const namesKept = 256

var getCalls = sync.Pool{New: func() any {
	k := &getCall{call: call{method: api.MethodRead, safe: true, keep: true}, names: table.NewInterner(namesKept)}
	k.call.encode = k.req.Append
	k.call.decode = func(d *wire.Decoder) (err error) {
		k.row, err = decodeRow(d, k.names)
		return err
	}
	return k
}}

func (k *getCall) release() {
	k.req.Row, k.req.Filter, k.call.row, k.row = k.req.Row[:0], nil, nil, nil
	getCalls.Put(k)
}

// decodeRow reads a row, or nil.
func decodeRow(d *wire.Decoder, names *table.Interner) (*table.Row, error) {
	if d.IsNil() {
		return nil, nil
	}
	// A row of one cell, as many reads ask for, is one piece of memory.
	r := &struct {
		table.Row
		first [1]table.Cell
	}{}
	r.Cells = r.first[:0]
	if err := table.DecodeRow(d, &r.Row, names); err != nil {
		return nil, err
	}
	return &r.Row, nil
}

// getRows is the most rows that GetAll asks for at a time. How large they are is
// not known; with a kilobyte each, 100 were three times as fast as 400 or more,
// whose answers outgrow the buffers that are used again.
const getRows = 100

// GetAll reads many rows: the result has one, or nil, for each key, in the order
// of the keys. It asks for 100 or Config.BatchRows at a time, whichever is less,
// some batches side by side, so the rows are not all of one moment. Rows of one
// batch share memory. Errors: those of Get; the first one ends it.
func (t *Table) GetAll(ctx context.Context, rows []string, opts ...ReadOption) ([]*table.Row, error) {
	o := readOptionsOf(opts)
	if o.err != nil {
		return nil, o.err
	}
	filter := encodeFilter(o.filter())
	found := make([]*table.Row, len(rows))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size := min(t.client.cfg.BatchRows, getRows)
	senders := newSenders(t.client.cfg.BatchesInFlight)
	for at := 0; at < len(rows); at += size {
		end := min(at+size, len(rows))
		senders.start(func() {
			if err := t.getBatch(ctx, rows[at:end], found[at:end], filter); err != nil {
				cancel(err)
			}
		})
	}
	senders.wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return found, nil
}

// getBatch reads rows into found. When they do not fit into one answer it halves
// them.
func (t *Table) getBatch(ctx context.Context, rows []string, found []*table.Row, filter []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	req := api.ReadRowsRequest{Table: t.name, Rows: make([][]byte, len(rows)), Filter: filter}
	for i, row := range rows {
		req.Rows[i] = []byte(row)
	}
	k := call{method: api.MethodReadRows, table: t.name, row: req.Rows[0], safe: true, keep: true, encode: req.Append}
	k.decode = func(d *wire.Decoder) error { return decodeRows(d, found) }
	err := t.client.do(ctx, &k)
	var limit *table.LimitError
	if errors.As(err, &limit) && limit.What == api.ResultBytes && len(rows) > 1 {
		half := len(rows) / 2
		if err = t.getBatch(ctx, rows[:half], found[:half], filter); err == nil {
			err = t.getBatch(ctx, rows[half:], found[half:], filter)
		}
	}
	return err
}

// decodeRows reads an array of len(into) rows or nils.
func decodeRows(d *wire.Decoder, into []*table.Row) error {
	if n := d.Array(); n != len(into) && d.Err() == nil {
		return errAnswer("%d rows, want %d", n, len(into))
	}
	names := table.NewInterner(namesKept)
	var err error
	for i := range into {
		if into[i], err = decodeRow(d, names); err != nil {
			return err
		}
	}
	return nil
}
