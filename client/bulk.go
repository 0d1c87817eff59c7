package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Bounds of a part that BulkSpan returns, below those of nodes, and of its requests.
const (
	bulkPartBytes    = 128 << 20
	bulkPartCells    = api.BulkPartCellsMax
	bulkRequestBytes = 1 << 20
	bulkRequestRows  = 10_000
)

// BulkOrder returns the rows of mutations in the order that BulkWrite needs. Mutations of one row become one, and of several cells with the same
// column and timestamp the last one remains. of has the index in rows for each mutation, or -1 if BulkWrite does not accept a mutation of its row, because
// it is not valid or does not only set cells with explicit timestamps: the mutations of a row are made in their order, all of them by ApplyAll. The
// mutations must not be changed as long as rows is used, and may be reordered.
func BulkOrder(ms []*RowMutation) (rows []*RowMutation, of []int) {
	order := make([]int, 0, len(ms))
	of = make([]int, len(ms))
	others := map[string]bool{} // rows of mutations that BulkWrite does not accept
	for i, m := range ms {
		if of[i] = -1; m.setsCells() && m.check() == nil {
			order = append(order, i)
		} else {
			others[string(m.rm.Row)] = true
		}
	}
	if len(others) > 0 {
		order = slices.DeleteFunc(order, func(i int) bool { return others[string(ms[i].rm.Row)] })
	}
	slices.SortStableFunc(order, func(a, b int) int { return bytes.Compare(ms[a].rm.Row, ms[b].rm.Row) })
	merged := false // the last of rows has a copy of mutations
	for _, i := range order {
		m := ms[i]
		last := len(rows) - 1
		switch {
		case last < 0 || !bytes.Equal(rows[last].rm.Row, m.rm.Row):
			rows, merged = append(rows, m), false
		case !merged:
			rows[last], merged = &RowMutation{rm: table.RowMutation{Row: m.rm.Row, Mutations: slices.Concat(rows[last].rm.Mutations, m.rm.Mutations)}}, true
		default:
			rows[last].rm.Mutations = append(rows[last].rm.Mutations, m.rm.Mutations...)
		}
		of[i] = len(rows) - 1
	}
	for _, m := range rows {
		m.orderCells()
	}
	return rows, of
}

// setsCells reports whether m only sets cells with explicit timestamps.
func (m *RowMutation) setsCells() bool {
	for i := range m.rm.Mutations {
		if c := &m.rm.Mutations[i]; c.Op != table.OpSet || c.Timestamp == table.ServerTimestamp || len(c.Value) > api.BulkValueBytesMax {
			return false
		}
	}
	return m.rm.Token == nil
}

// orderCells sorts the cells that m sets.
func (m *RowMutation) orderCells() {
	ascending := func(a, b table.Mutation) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), bytes.Compare(a.Qualifier, b.Qualifier), cmp.Compare(b.Timestamp, a.Timestamp))
	}
	ms := m.rm.Mutations
	slices.SortStableFunc(ms, ascending)
	kept := ms[:0]
	for i := range ms {
		if i+1 == len(ms) || ascending(ms[i], ms[i+1]) != 0 {
			kept = append(kept, ms[i])
		}
	}
	m.rm.Mutations = kept
}

// BulkSpan returns how many of the rows, from the first on, BulkWrite can write at once: those of one tablet, within the bounds of a part. bytes is
// their size. There must be rows, in ascending order. Errors: those of locating the first row, as of Apply.
func (t *Table) BulkSpan(ctx context.Context, rows []*RowMutation) (n int, bytes int64, err error) {
	to, err := t.client.calls.locator.locate(ctx, t.name, rows[0].rm.Row)
	if err != nil {
		return 0, 0, err
	}
	cells := 0
	for n < len(rows) {
		m := rows[n]
		size := m.Size()
		if cells += len(m.rm.Mutations); n > 0 && (cells > bulkPartCells || bytes+size > bulkPartBytes || to.loc != nil && !to.loc.has(m.rm.Row)) {
			break
		}
		n, bytes = n+1, bytes+size
	}
	return n, bytes, nil
}

// BulkWrite writes rows of one tablet, all at once, by SSTables instead of the commit log: a part of a bulk import. When it returns nil, they are
// durable. It needs much less work than ApplyAll for many rows, and more for few. The table must have no change stream.
//
// The mutations set cells with explicit timestamps, in the order of BulkOrder: by row, family, qualifier, and descending timestamp. BulkSpan has
// returned that they are of one tablet.
//
// Nothing is written after ErrBulkExpired: the tablet was split or moved, or the schema was changed. The rows can be sent again, with another
// BulkSpan. Other errors: ErrBulkRefused, ErrBulkOrder, and those of Apply. After an *AmbiguousError the rows may have been written.
func (t *Table) BulkWrite(ctx context.Context, rows []*RowMutation) error {
	for _, m := range rows {
		if err := m.check(); err != nil {
			return err
		}
	}
	p := &bulkPart{table: t, rows: rows, row: rows[0].rm.Row}
	_, _ = rand.Read(p.id[:]) // never fails
	err := p.write(ctx)
	if err == nil {
		err = p.commit(ctx)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrBulkExpired):
		err = ErrBulkExpired // also if an earlier attempt was ambiguous: the node knows by now
		if p.to.loc != nil {
			t.client.calls.locator.invalidate(p.to, notServing, nil)
		}
	case !errors.Is(err, ErrAmbiguous):
		p.abort(ctx)
	}
	return err
}

// bulkPart is a part of a bulk import while it is written.
type bulkPart struct {
	table    *Table
	id       [api.BulkIDBytes]byte
	row      []byte // the first one
	rows     []*RowMutation
	requests int64
	to       destination // of the last call
}

// write sends the rows.
func (p *bulkPart) write(ctx context.Context) error {
	for from := 0; from < len(p.rows); {
		to, bytes, mutations := from, int64(0), 0
		for to < len(p.rows) && to-from < bulkRequestRows {
			m := p.rows[to]
			if to > from && (bytes+m.Size() > bulkRequestBytes || mutations+len(m.rm.Mutations) > api.BatchMutationsMax) {
				break
			}
			to, bytes, mutations = to+1, bytes+m.Size(), mutations+len(m.rm.Mutations)
		}
		rows := p.rows[from:to]
		req := &api.BulkWriteRequest{Part: p.id, Number: p.requests}
		req.Table, req.View = p.table.name, p.table.view
		if err := p.call(ctx, &call{
			method: api.MethodBulkWrite, id: &req.TableID, traceID: &req.TraceID, safe: true,
			encode: func(e *wire.Encoder) {
				e.Grow(int(bytes) + 32*(len(rows)+mutations)) // at once: a large buffer that grows is copied often
				req.AppendEach(e, len(rows), func(i int) *table.RowMutation { return &rows[i].rm })
			},
		}); err != nil {
			return err
		}
		p.requests++
		from = to
	}
	return nil
}

// commit commits the part. It repeats that as long as the node knows whether the part was committed.
func (p *bulkPart) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, api.BulkCommitWait)
	defer cancel()
	pauses := timing.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	for {
		req := &api.BulkRequest{Table: p.table.name, Part: p.id, Row: p.row, Requests: p.requests}
		req.View = p.table.view
		err := p.call(ctx, &call{method: api.MethodBulkCommit, id: &req.TableID, traceID: &req.TraceID, safe: true, change: true, encode: req.Append})
		if !errors.Is(err, ErrAmbiguous) || errors.Is(err, ErrBulkExpired) || p.table.client.life.closed() {
			return err
		}
		if pauses.Sleep(ctx); ctx.Err() != nil {
			return err
		}
	}
}

// bulkAbortTimeout bounds bulk_abort. A part that it does not reach is aborted when it is idle.
const bulkAbortTimeout = 2 * time.Second

// abort discards the part.
func (p *bulkPart) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bulkAbortTimeout)
	defer cancel()
	req := &api.BulkRequest{Table: p.table.name, Part: p.id, Row: p.row}
	_ = p.call(ctx, &call{method: api.MethodBulkAbort, id: &req.TableID, traceID: &req.TraceID, safe: true, encode: req.Append})
}

// call makes a call to the server of the part's tablet.
func (p *bulkPart) call(ctx context.Context, k *call) error {
	k.table, k.row = p.table.name, p.row
	err := p.table.client.calls.do(ctx, k)
	p.to = k.sentTo
	return err
}
