package dataapi

import (
	"context"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/results"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

var readRequests = sync.Pool{New: func() any { return new(api.ReadRequest) }}

func (d *Service) read(c *rpc.Call) {
	r := readRequests.Get().(*api.ReadRequest)
	defer readRequests.Put(r)
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	f, err := d.program(c, r.Table, r.View, r.Filter)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	m := d.Quotas.Meter(c, r.Table, false)
	if err := m.Take(quota.ReadOps, 1, 0); err != nil {
		reply.Fail(c, err)
		return
	}
	d.answerRow(c, rowRead{r.Table, r.View, r.TableID, r.Row, r.RowBytes, r.Position}, f, m, false)
}

// rowRead is the read of one row.
type rowRead struct {
	table string
	view  string // to which the read is confined; empty for the whole table
	id    uint64 // of the table; 0: any
	row   []byte
	bytes int64 // api.ReadRequest.RowBytes

	position bool // answer with the position of the row, too
}

// answerRow answers with a row, or with an array of this row.
func (d *Service) answerRow(c *rpc.Call, r rowRead, f *table.Program, m quotas.Metered, inArray bool) {
	a := d.Authz.Access(c, r.table, r.view)
	defer a.Release()
	answered := false
	ctx := timing.ClockContext{Context: context.Background(), Until: c.Deadline()}
	memory := results.Answer{Of: d.Results, User: authz.SubjectOf(c).Owner(), Copies: 1, Trace: c.Trace()} // the answer is encoded into the connection's output
	defer memory.Release()
	turn := d.turnsOf(c, r.table, f)
	defer turn.release()
	as := turn.in(d.Tablets.TabletsOf(r.table).For(a.Of(true)).Table(r.id)).Traced(c.Trace())
	var at *api.RowPosition
	if r.position {
		at = new(api.RowPosition)
		as = as.Positioned(at)
	}
	emit := func(key []byte, cells []table.Cell) error {
		size := cellsBytes(cells)
		if size > api.ResultBytesMax {
			return &api.RowTooLargeError{Limit: api.ResultBytesMax}
		}
		if err := api.CheckRowBytes(cells, r.bytes); err != nil {
			return err
		}
		if !memory.Fits(size) {
			return results.ErrMoreMemory
		}
		memory.UntilSent(c)
		answered = true
		m.Charge(quota.ReadOps, 0, int64(size+len(key)))
		c.Reply(func(e *wire.Encoder) {
			if size > results.SmallAnswerBytes {
				e.Grow(size + len(key) + rowHeadBytes)
			}
			switch {
			case inArray:
				e.Array(1)
			case at != nil:
				at.Append(e, func() { api.AppendRow(e, key, cells) })
				return
			}
			api.AppendRow(e, key, cells)
		})
		return nil
	}
	err := as.ReadRow(ctx, r.table, r.row, f, emit)
	for err == results.ErrMoreMemory {
		if err = memory.Await(ctx, memory.Lacks); err == nil {
			err = as.ReadRow(ctx, r.table, r.row, f, emit)
		}
	}
	switch {
	case answered:
	case err != nil:
		err = d.Tablets.Misrouted(a, err, r.table, r.id, r.row)
		m.Refund(err, quota.ReadOps, 1, 0)
		reply.Fail(c, err)
	case inArray:
		c.Reply(func(e *wire.Encoder) { e.Array(1); e.Nil() })
	case at != nil:
		c.Reply(func(e *wire.Encoder) { at.Append(e, e.Nil) })
	default:
		c.Reply(nil)
	}
}

// rowHeadBytes bounds the bytes of a row besides its key and cells.
const rowHeadBytes = 32

// cellsBytes estimates the bytes of cells in an answer.
func cellsBytes(cells []table.Cell) (n int) {
	for i := range cells {
		n += len(cells[i].Family) + len(cells[i].Qualifier) + len(cells[i].Value) + 16
	}
	return n
}

// readRowsBytes estimates the result of so many rows. Their sizes are unknown before they are read.
func readRowsBytes(rows int) int { return 16 << 10 * (1 + rows) }

func (d *Service) readRows(c *rpc.Call) {
	var r api.ReadRowsRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	f, err := d.program(c, r.Table, r.View, r.Filter)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	m := d.Quotas.Meter(c, r.Table, false)
	if err := m.Take(quota.ReadOps, int64(len(r.Rows)), 0); err != nil {
		reply.Fail(c, err)
		return
	}
	if len(r.Rows) == 1 { // its size is known before it is encoded
		d.answerRow(c, rowRead{r.Table, r.View, r.TableID, r.Rows[0], r.RowBytes, false}, f, m, true)
		return
	}
	a := d.Authz.Access(c, r.Table, r.View)
	defer a.Release()
	if err := d.answerRows(c, a, &r, f, m); err != nil {
		m.Refund(err, quota.ReadOps, int64(len(r.Rows)), 0)
		reply.Fail(c, err)
	}
}

// answerRows answers with the rows of a request. After an error it has not answered.
func (d *Service) answerRows(c *rpc.Call, a *authz.Access, r *api.ReadRowsRequest, f *table.Program, m quotas.Metered) error {
	memory := results.Answer{Of: d.Results, User: authz.SubjectOf(c).Owner(), Copies: 2, Trace: c.Trace()}
	defer memory.Release()
	e, err := memory.Build(c.Context(), readRowsBytes(len(r.Rows)), func(e *wire.Encoder) error {
		return d.readRowsInto(c, a, r, f, e, &memory)
	})
	if err != nil {
		return err
	}
	defer e.Release()
	memory.UntilSent(c)
	m.Charge(quota.ReadOps, 0, int64(e.Len()))
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
	return nil
}

// readRowsInto reads the rows of a request into e as far as they fit. It starts again if rights change meanwhile.
func (d *Service) readRowsInto(c *rpc.Call, a *authz.Access, r *api.ReadRowsRequest, f *table.Program, e *wire.Encoder, memory *results.Answer) error {
	turn := d.turnsOf(c, r.Table, f)
	defer turn.release()
	as, most := turn.in(d.Tablets.TabletsOf(r.Table).For(a.Of(true)).Table(r.TableID)).Traced(c.Trace()), d.Results.Batch(api.ResultBytesMax)
	for {
		e.Reset()
		e.Array(len(r.Rows))
		next := 0
		missUntil := func(i int) {
			for ; next < i; next++ {
				e.Nil()
			}
		}
		at, err := as.ReadRows(c.Context(), r.Table, r.Rows, f, func(i int, key []byte, cells []table.Cell) error {
			if err := api.CheckRowBytes(cells, r.RowBytes); err != nil {
				return err
			}
			switch size := e.Len() + len(key) + cellsBytes(cells); {
			case size > most:
				return &table.LimitError{What: api.ResultBytes, Limit: int64(most), Got: int64(size)}
			case !memory.Fits(size):
				return results.ErrMoreMemory
			}
			missUntil(i)
			next++
			api.AppendRow(e, key, cells)
			return nil
		})
		switch err {
		case nil:
			missUntil(len(r.Rows))
			return nil
		case tablet.ErrAccessChanged:
		case results.ErrMoreMemory:
			return err
		default:
			return d.Tablets.Misrouted(a, err, r.Table, r.TableID, r.Rows[at])
		}
	}
}
