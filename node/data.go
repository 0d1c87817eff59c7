package node

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/fair"
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

// dataService executes requests for rows: reads, scans and mutations.
type dataService struct {
	ctx     context.Context // of the node
	limits  *table.Limits
	authz   *authz.Authorizer
	costly  *fair.Gate // turns for costly filters
	results *results.Memory
	filters filterCache
	cursors cursors
	tablets tabletsOf
	quotas  meterer
}

// tabletsOf locates tablets.
type tabletsOf interface {
	// tabletsOf returns this node's tablet server for a table.
	tabletsOf(table string) *tablet.Server
	// misroutedErrorFor returns the error for a row that is not served here.
	misroutedErrorFor(a *authz.Access, err error, table string, id uint64, row []byte) error
}

// meterer returns the quotas that requests count for.
type meterer interface {
	Meter(c *rpc.Call, table string, write bool) quotas.Metered
	MeterNow(c *rpc.Call, table string, write bool) (m quotas.Metered, known bool)
}

// register registers the methods of the data API.
func (d *dataService) register(handle func(method string, mode rpc.Mode, h func(*rpc.Call))) {
	handle(api.MethodMutate, rpc.Inline, d.mutate)
	handle(api.MethodMutateRows, rpc.Spawned, d.mutateRows)
	handle(api.MethodRead, rpc.Pooled, d.read)
	handle(api.MethodReadRows, rpc.Spawned, d.readRows)
	handle(api.MethodCheckAndMutate, rpc.Spawned, d.checkAndMutate)
	handle(api.MethodReadModifyWrite, rpc.Spawned, d.readModifyWrite)
	handle(api.MethodScanOpen, rpc.Spawned, d.scanOpen)
	handle(api.MethodScanNext, rpc.Spawned, d.scanNext)
	handle(api.MethodScanClose, rpc.Inline, d.scanClose)
}

var mutateRequests = sync.Pool{New: func() any { return new(api.MutateRequest) }}

// mutate runs on the connection's reader: it only adds the mutation to the commit log's batch. If that would wait, it continues on
// another goroutine.
func (d *dataService) mutate(c *rpc.Call) {
	r := mutateRequests.Get().(*api.MutateRequest)
	if err := r.Decode(&c.Params, c.NumParams, d.limits); err != nil {
		mutateRequests.Put(r)
		reply.Fail(c, err)
		return
	}
	if !reply.Begin(c, &r.Options) {
		mutateRequests.Put(r)
		return
	}
	if metadata.IsSystem(r.Table) {
		mutateRequests.Put(r)
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	m, known := d.quotas.MeterNow(c, r.Table, true)
	if known {
		d.mutateMetered(c, r, m, true)
		return
	}
	go func() { d.mutateMetered(c, r, d.quotas.Meter(c, r.Table, true), false) }()
}

// mutateMetered executes a mutation with its quotas. If now, it must not wait on the calling goroutine. It returns r to the pool.
func (d *dataService) mutateMetered(c *rpc.Call, r *api.MutateRequest, m quotas.Metered, now bool) {
	name, id, row, bytes := r.Table, r.TableID, r.Row.Row, int64(0) // r is reused before the answer, the message is not
	if !m.None() {
		bytes = r.Row.Size()
		err := m.MayAdd(r.Row.Mutations)
		if err == nil {
			err = m.Take(quota.WriteOps, 1, bytes)
		}
		if err != nil {
			mutateRequests.Put(r)
			reply.Fail(c, err)
			return
		}
	}
	a := d.authz.Access(c, name)
	done := func(timestamp int64, err error) {
		if a != nil && err == nil && !a.Holds() {
			go d.settleMutate(c, a, timestamp) // the caller must not wait
			return
		}
		switch {
		case err == nil:
			c.Reply(func(e *wire.Encoder) { api.AppendTimestamp(e, timestamp) })
			a.Release()
		case misrouted(err):
			go d.refuseMutate(c, a, &m, err, name, id, row, bytes) // it may wait for METADATA
		default:
			d.refuseMutate(c, a, &m, err, name, id, row, bytes)
		}
	}
	if now && d.tablets.tabletsOf(name).For(a.Of(false)).Table(id).ApplyNow(name, &r.Row, done) {
		mutateRequests.Put(r)
		return
	}
	// rpc bounds these by the requests in flight.
	go func() {
		d.tablets.tabletsOf(name).For(a.Of(true)).Table(id).Apply(name, &r.Row, done)
		mutateRequests.Put(r)
	}()
}

// refuseMutate answers a failed mutation of that many bytes and refunds its quota.
func (d *dataService) refuseMutate(c *rpc.Call, a *authz.Access, m *quotas.Metered, err error, name string, id uint64, row []byte, bytes int64) {
	err = d.tablets.misroutedErrorFor(a, err, name, id, row)
	m.Refund(err, quota.WriteOps, 1, bytes)
	reply.Fail(c, err)
	a.Release()
}

// settleMutate answers a mutation during which rights changed.
func (d *dataService) settleMutate(c *rpc.Call, a *authz.Access, timestamp int64) {
	if err := a.Settle(d.ctx); err != nil {
		reply.Fail(c, err)
	} else {
		c.Reply(func(e *wire.Encoder) { api.AppendTimestamp(e, timestamp) })
	}
	a.Release()
}

func (d *dataService) mutateRows(c *rpc.Call) {
	var r api.MutateRowsRequest
	if err := r.Decode(&c.Params, c.NumParams, d.limits); err != nil {
		reply.Fail(c, err)
		return
	}
	if !reply.Begin(c, &r.Options) {
		return
	}
	if metadata.IsSystem(r.Table) {
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	k := &rowsCall{d: d, c: c, table: r.Table, id: r.TableID, rows: r.Rows, m: d.quotas.Meter(c, r.Table, true), outcomes: make([]rowOutcome, len(r.Rows))}
	k.left.Store(int64(len(r.Rows)) + 1)
	if err := k.m.TakeRows(r.Rows, func(i int, err error) { k.outcomes[i].err = err }); err != nil {
		k.refused.Store(&err)
	}
	for i := range r.Rows {
		k.begin(i)
	}
	k.finish()
}

// rowsCall is a mutate_rows call while it runs.
type rowsCall struct {
	d        *dataService
	c        *rpc.Call
	table    string
	id       uint64 // of the table; 0: the table that has the name
	rows     []table.RowMutation
	m        quotas.Metered
	outcomes []rowOutcome
	left     atomic.Int64 // rows without an outcome, plus one until all are begun
	// refused is set by a row that is refused after waiting, with an error that the other rows would get, too.
	refused atomic.Pointer[error]
	// misrouted is set by a row that this node does not serve: the answer may wait for METADATA.
	misrouted atomic.Bool
}

// rowOutcome is the outcome of one row.
type rowOutcome struct {
	timestamp int64
	err       error
	access    *authz.Access
}

// begin starts the mutation of a row, unless it has an outcome.
func (k *rowsCall) begin(i int) {
	o := &k.outcomes[i]
	o.access = k.d.authz.Access(k.c, k.table)
	switch refused := k.refused.Load(); {
	case o.err != nil: // over quota
	case k.c.Expired():
		o.err = reply.Expired("the deadline passed before the row's turn came")
	case refused != nil:
		o.err = *refused
	default:
		k.d.tablets.tabletsOf(k.table).For(o.access.Of(true)).Table(k.id).Apply(k.table, &k.rows[i], func(timestamp int64, err error) {
			o.timestamp, o.err = timestamp, err
			if err != nil && misrouted(err) {
				k.misrouted.Store(true)
			}
			if err != nil && reply.RefusesWrites(err) {
				k.refused.Store(&err)
			}
			k.finish()
		})
		return
	}
	k.finish()
}

// finish records that a row has an outcome, or that all are begun. The last call answers.
func (k *rowsCall) finish() {
	switch {
	case k.left.Add(-1) > 0:
	case len(k.outcomes) > 0 && (k.outcomes[0].access != nil || k.misrouted.Load()):
		go k.Result() // it may wait, and the caller must not
	default:
		k.Result()
	}
}

func (k *rowsCall) Result() {
	for i := range k.outcomes {
		o := &k.outcomes[i]
		if o.err == nil {
			o.err = o.access.Settle(k.d.ctx)
		}
		if o.err != nil {
			o.err = k.d.tablets.misroutedErrorFor(o.access, o.err, k.table, k.id, k.rows[i].Row)
			if !k.m.None() {
				k.m.Refund(o.err, quota.WriteOps, 1, k.rows[i].Size())
			}
			o.err = reply.ToAPI(o.err)
		}
		o.access.Release()
	}
	k.c.Reply(func(e *wire.Encoder) {
		e.Array(len(k.outcomes))
		for i := range k.outcomes {
			api.AppendMutateResult(e, k.outcomes[i].timestamp, k.outcomes[i].err)
		}
	})
}

func (d *dataService) checkAndMutate(c *rpc.Call) {
	var r api.CheckAndMutateRequest
	if err := r.Decode(&c.Params, c.NumParams, d.limits); err != nil {
		reply.Fail(c, err)
		return
	}
	if !reply.Begin(c, &r.Options) {
		return
	}
	a := d.authz.Access(c, r.Table)
	defer a.Release()
	if metadata.IsSystem(r.Table) && (!r.System || a != nil) {
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	f, err := d.program(c, r.Table, r.Predicate)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	m := d.quotas.Meter(c, r.Table, true)
	if err := m.TakeBoth(r.True, r.False); err != nil {
		reply.Fail(c, err)
		return
	}
	turn := d.turnsOf(c, r.Table, f)
	defer turn.release()
	matched, err := turn.in(d.tablets.tabletsOf(r.Table).For(a.Of(true)).Table(r.TableID)).CheckAndMutate(c.Context(), r.Table, r.Row, f, r.True, r.False)
	if err == nil {
		rm := table.RowMutation{Row: r.Row, Mutations: r.False}
		if matched {
			rm.Mutations = r.True
		}
		m.Charge(quota.WriteOps, 0, rm.Size())
		err = a.Settle(d.ctx)
	}
	if err != nil {
		err = d.tablets.misroutedErrorFor(a, err, r.Table, r.TableID, r.Row)
		m.RefundBoth(err)
		reply.Fail(c, err)
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Bool(matched) })
}

func (d *dataService) readModifyWrite(c *rpc.Call) {
	var r api.ReadModifyWriteRequest
	if err := r.Decode(&c.Params, c.NumParams, d.limits); err != nil {
		reply.Fail(c, err)
		return
	}
	if !reply.Begin(c, &r.Options) {
		return
	}
	if metadata.IsSystem(r.Table) {
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	a := d.authz.Access(c, r.Table)
	defer a.Release()
	m := d.quotas.Meter(c, r.Table, true)
	if err := m.TakeBoth([]table.Mutation{{Op: table.OpSet}}); err != nil { // rules add data
		reply.Fail(c, err)
		return
	}
	row, err := d.tablets.tabletsOf(r.Table).For(a.Of(true)).Table(r.TableID).ReadModifyWrite(c.Context(), r.Table, r.Row, r.Rules)
	if err == nil {
		bytes := int64(len(r.Row) + cellsBytes(row.Cells))
		m.Charge(quota.WriteOps, 0, bytes)
		m.Charge(quota.ReadOps, 0, bytes)
		err = a.Settle(d.ctx)
	}
	if err != nil {
		err = d.tablets.misroutedErrorFor(a, err, r.Table, r.TableID, r.Row)
		m.RefundBoth(err)
		reply.Fail(c, err)
		return
	}
	c.Reply(func(e *wire.Encoder) { api.AppendRow(e, row.Key, row.Cells) })
}
