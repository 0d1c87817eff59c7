package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Get reads one row. It returns nil if the row does not exist or if the options leave no cell of
// it. The caller owns the row.
//
// Errors: ErrNoTable, table.ErrBadRowKey, invalid options, *RowTooLargeError, *CorruptError; after
// retries, those of a node that cannot be reached or does not serve; ctx's.
func (t *Table) Get(ctx context.Context, row string, opts ...ReadOption) (*table.Row, error) {
	got, _, err := t.get(ctx, row, false, opts)
	return got, err
}

// RowPosition is where the state of a row that was read is in the table's change stream.
type RowPosition = api.RowPosition

// GetPositioned is Get of a table with a change stream. It also returns the position of the state of the row, also of one that does not exist.
//
// Errors: those of Get and Changes.Next.
func (t *Table) GetPositioned(ctx context.Context, row string, opts ...ReadOption) (*table.Row, RowPosition, error) {
	return t.get(ctx, row, true, opts)
}

func (t *Table) get(ctx context.Context, row string, position bool, opts []ReadOption) (*table.Row, RowPosition, error) {
	k := getCalls.Get().(*getCall)
	defer k.release()
	if len(opts) > 0 {
		o := readOptionsOf(opts)
		if o.err != nil {
			return nil, RowPosition{}, o.err
		}
		k.req.Filter, k.req.RowBytes = encodeFilter(o.filter()), o.rowBytes
	}
	k.req.Table, k.req.View, k.call.table = t.name, t.view, t.name
	k.req.Row, k.req.Position = append(k.req.Row, row...), position
	k.call.row = k.req.Row
	if err := t.client.calls.do(ctx, &k.call); err != nil {
		return nil, RowPosition{}, err
	}
	return k.row, k.position, nil
}

// getCall holds everything that a read call needs in one allocation.
type getCall struct {
	call  call
	req   api.ReadRequest
	names *table.Interner
	row   *table.Row
	// position is set if req asks for it.
	position RowPosition
}

// internedMax is the number of names of families and labels that a decoder interns.
const internedMax = 256

var getCalls = sync.Pool{New: func() any {
	k := &getCall{call: call{method: api.MethodRead, safe: true, keep: true}, names: table.NewInterner(internedMax)}
	k.call.encode, k.call.id, k.call.traceID = k.req.Append, &k.req.TableID, &k.req.TraceID
	k.call.decode = func(d *wire.Decoder) error {
		if k.req.Position {
			return k.position.Decode(d, func() error { return k.decodeRow(d) })
		}
		return k.decodeRow(d)
	}
	return k
}}

func (k *getCall) decodeRow(d *wire.Decoder) (err error) {
	if err := api.CheckRowCells(*d, k.req.RowBytes); err != nil {
		return err
	}
	k.row, err = decodeRow(d, k.names)
	return err
}

func (k *getCall) release() {
	k.req.Row, k.req.Filter, k.req.RowBytes, k.call.row, k.row, k.position = k.req.Row[:0], nil, 0, nil, nil, RowPosition{}
	getCalls.Put(k)
}

// decodeRow decodes a row; it returns nil for nil.
func decodeRow(d *wire.Decoder, names *table.Interner) (*table.Row, error) {
	if d.IsNil() {
		return nil, nil
	}
	// A row with one cell, a common result, takes one allocation.
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

// getRows is the maximum number of rows in one request of GetAll, whose sizes are not known in
// advance. With a kilobyte each, 100 were three times as fast as 400 or more, whose responses
// exceed the pooled buffers.
const getRows = 100

// GetAll reads many rows. The result has one row, or nil, for each key, in the order of the keys.
// It reads in batches of 100 rows, or Config.BatchRows if that is less, some of them concurrently,
// so the rows are not a consistent snapshot. Rows of one batch share memory. Errors: those of Get;
// the first one ends GetAll.
func (t *Table) GetAll(ctx context.Context, rows []string, opts ...ReadOption) ([]*table.Row, error) {
	o := readOptionsOf(opts)
	if o.err != nil {
		return nil, o.err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &reads{table: t, rows: rows, found: make([]*table.Row, len(rows)), filter: encodeFilter(o.filter()), rowBytes: o.rowBytes}
	size := min(t.client.cfg.BatchRows, getRows)
	b.most.Store(int64(size))
	senders := newSenders(t.client.cfg.BatchesInFlight)
	start := func(todo []int) {
		senders.start(func() {
			if err := b.read(ctx, todo); err != nil {
				cancel(err)
			}
		})
	}
	r := router{table: t}
	open := map[string][]int{} // by address; "" holds rows to be located later
	for i := range rows {
		to, _ := r.route(ctx, b.row(i))
		addr := to.node.address()
		open[addr] = append(open[addr], i)
		if todo := open[addr]; len(todo) == size {
			delete(open, addr)
			start(todo)
		}
	}
	for _, todo := range open {
		start(todo)
	}
	senders.wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return b.found, nil
}

// reads holds the rows of a GetAll.
type reads struct {
	table  *Table
	rows   []string
	found  []*table.Row
	filter []byte
	// rowBytes bounds each row; 0: no bound
	rowBytes int64
	// most is the number of rows that are read at once.
	most atomic.Int64
}

func (b *reads) row(i int) []byte { return []byte(b.rows[i]) }

// read reads the rows with the indexes todo, and reads misrouted ones again.
func (b *reads) read(ctx context.Context, todo []int) error {
	calls := &b.table.client.calls
	again := retrier{calls: calls, started: time.Now()}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := decision{elsewhere: true}
		var left []int
		r := router{table: b.table}
		for _, g := range r.split(ctx, todo, b.row) {
			w := decision{err: g.err}
			if g.err == nil {
				w = b.send(ctx, &r, &g)
			} else {
				w = calls.classify(&call{}, attempt{err: g.err})
			}
			if w.err != nil && !w.retryable {
				return w.err
			}
			if w.err != nil {
				left = append(left, g.items...)
				v.join(w)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if !again.wait(ctx, &v) {
			return v.err
		}
		todo = left
	}
}

// send reads a group. If its rows do not fit into one response, it reads half as many at once, and so does the rest of the GetAll. The decision
// has no error if all rows were read.
func (b *reads) send(ctx context.Context, r *router, g *group) decision {
	for left := g.items; len(left) > 0; {
		n := min(len(left), int(b.most.Load()))
		misrouted, err := b.sendPart(ctx, r, &group{to: g.to, items: left[:n]})
		var limit *table.LimitError
		switch {
		case misrouted.relocate:
			return misrouted
		case errors.As(err, &limit) && limit.What == api.ResultBytes && n > 1:
			b.fewer(n / 2)
		case err != nil:
			return decision{err: err}
		default:
			left = left[n:]
		}
	}
	return decision{}
}

// fewer makes n the number of rows that are read at once, unless it is lower.
func (b *reads) fewer(n int) {
	for most := b.most.Load(); int64(n) < most && !b.most.CompareAndSwap(most, int64(n)); most = b.most.Load() {
	}
}

// sendPart reads a group by one call. If it was misrouted, the decision is to locate its rows again.
func (b *reads) sendPart(ctx context.Context, r *router, g *group) (decision, error) {
	req := api.ReadRowsRequest{TableOptions: api.TableOptions{View: b.table.view}, Table: b.table.name, Rows: make([][]byte, len(g.items)), Filter: b.filter, RowBytes: b.rowBytes}
	for at, i := range g.items {
		req.Rows[at] = b.row(i)
	}
	k := call{method: api.MethodReadRows, table: b.table.name, row: req.Rows[0], id: &req.TableID, traceID: &req.TraceID, dest: g.to, safe: true, keep: true, encode: req.Append}
	k.decode = func(d *wire.Decoder) error { return b.decode(d, g.items) }
	err := b.table.client.calls.do(ctx, &k)
	if err != nil && k.misrouted.relocate {
		r.invalidate(g, broken, b.row)
		return k.misrouted, err
	}
	return decision{}, err
}

// decode decodes an array with a row or nil for each item.
func (b *reads) decode(d *wire.Decoder, items []int) error {
	if n := d.Array(); n != len(items) && d.Err() == nil {
		return errAnswer("%d rows, want %d", n, len(items))
	}
	names := table.NewInterner(internedMax)
	var err error
	for _, i := range items {
		if b.found[i], err = decodeRow(d, names); err != nil {
			return err
		}
	}
	return nil
}
