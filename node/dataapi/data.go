package dataapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/fair"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/results"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Service executes requests for rows: reads, scans and mutations.
type Service struct {
	Config
	Costly  *fair.Gate // turns for costly filters
	filters filterCache
	cursors cursors
}

// Config has what the service needs of the node.
type Config struct {
	Ctx     context.Context // ends when the node closes
	Limits  *table.Limits
	Authz   *authz.Authorizer
	Results *results.Memory
	Tablets Tablets
	Quotas  Meter
	// CursorBytes bounds the memory of open scan cursors.
	CursorBytes int64
}

// New returns the service. Its cursors end with Close.
func New(cfg Config) *Service {
	d := &Service{Config: cfg, Costly: fair.New(CostlyTurns(), TurnsWaitMax)}
	d.cursors.bytesMax = cfg.CursorBytes
	return d
}

// Start returns a function that closes idle cursors until Close is called.
func (d *Service) Start() (closeIdle func()) {
	stop := d.cursors.start()
	return func() { d.cursors.sweep(stop) }
}

// Close closes all cursors.
func (d *Service) Close() { d.cursors.close() }

// Tablets has this node's tablet servers, and locates rows that it does not serve.
type Tablets interface {
	// TabletsOf returns this node's tablet server for a table.
	TabletsOf(table string) *tablet.Server
	// Misrouted returns the error for a row that is not served here.
	Misrouted(a *authz.Access, err error, table string, id uint64, row []byte) error
}

// Meter returns the quotas that requests count for.
type Meter interface {
	Meter(c *rpc.Call, table string, write bool) quotas.Metered
	MeterNow(c *rpc.Call, table string, write bool) (m quotas.Metered, known bool)
}

// Register registers the methods of the data API.
func (d *Service) Register(r method.Registrar) {
	r.Handle(api.MethodMutate, rpc.Inline, authz.Guard{To: authz.Own}, d.mutate)
	r.Handle(api.MethodMutateRows, rpc.Spawned, authz.Guard{To: authz.Own}, d.mutateRows)
	r.Handle(api.MethodRead, rpc.Pooled, authz.Guard{To: authz.Own}, d.read)
	r.Handle(api.MethodReadRows, rpc.Spawned, authz.Guard{To: authz.Own}, d.readRows)
	r.Handle(api.MethodCheckAndMutate, rpc.Spawned, authz.Guard{To: authz.Own}, d.checkAndMutate)
	r.Handle(api.MethodReadModifyWrite, rpc.Spawned, authz.Guard{To: authz.Own}, d.readModifyWrite)
	r.Handle(api.MethodFollow, rpc.Spawned, authz.Guard{}, d.follow)
	r.Handle(api.MethodReadChanges, rpc.Waiting, authz.Guard{To: authz.Own}, d.readChanges)
	r.Handle(api.MethodScanOpen, rpc.Spawned, authz.Guard{To: authz.Own}, d.scanOpen)
	r.Handle(api.MethodScanNext, rpc.Spawned, authz.Guard{To: authz.Own}, d.scanNext)
	r.Handle(api.MethodScanClose, rpc.Inline, authz.Guard{To: authz.Own}, d.scanClose)
}

var mutateRequests = sync.Pool{New: func() any { return new(api.MutateRequest) }}

// mutate runs on the connection's reader: it does nothing that waits, and adds the mutation to the commit log's batch. If it would wait, it continues on
// another goroutine.
func (d *Service) mutate(c *rpc.Call) {
	r := mutateRequests.Get().(*api.MutateRequest)
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		mutateRequests.Put(r)
		return
	}
	if metadata.IsSystem(r.Table) {
		mutateRequests.Put(r)
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	m, known := d.Quotas.MeterNow(c, r.Table, true)
	if known {
		d.mutateMetered(c, r, m, true)
		return
	}
	go func() { d.mutateMetered(c, r, d.Quotas.Meter(c, r.Table, true), false) }()
}

// mutateMetered executes a mutation with its quotas. If now, it must not wait on the calling goroutine. It returns r to the pool.
func (d *Service) mutateMetered(c *rpc.Call, r *api.MutateRequest, m quotas.Metered, now bool) {
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
	a := d.Authz.Access(c, name, r.View)
	done := func(timestamp int64, err error) {
		if a != nil && err == nil && !a.Holds() {
			go d.settleMutate(c, a, timestamp) // the caller must not wait
			return
		}
		switch {
		case err == nil:
			c.Reply(func(e *wire.Encoder) { api.AppendTimestamp(e, timestamp) })
			a.Release()
		case errors.Is(err, api.ErrNotServing):
			go d.refuseMutate(c, a, &m, err, name, id, row, bytes) // it may wait for METADATA
		default:
			d.refuseMutate(c, a, &m, err, name, id, row, bytes)
		}
	}
	if now && d.Tablets.TabletsOf(name).For(a.Of(false)).Table(id).Traced(c.Trace()).ApplyNow(name, &r.Row, done) {
		mutateRequests.Put(r)
		return
	}
	// rpc bounds these by the requests in flight.
	go func() {
		d.Tablets.TabletsOf(name).For(a.Of(true)).Table(id).Traced(c.Trace()).Apply(name, &r.Row, done)
		mutateRequests.Put(r)
	}()
}

// refuseMutate answers a failed mutation of that many bytes and refunds its quota.
func (d *Service) refuseMutate(c *rpc.Call, a *authz.Access, m *quotas.Metered, err error, name string, id uint64, row []byte, bytes int64) {
	err = d.Tablets.Misrouted(a, err, name, id, row)
	m.Refund(err, quota.WriteOps, 1, bytes)
	reply.Fail(c, err)
	a.Release()
}

// settleMutate answers a mutation during which rights changed.
func (d *Service) settleMutate(c *rpc.Call, a *authz.Access, timestamp int64) {
	if err := a.Settle(d.Ctx); err != nil {
		reply.Fail(c, err)
	} else {
		c.Reply(func(e *wire.Encoder) { api.AppendTimestamp(e, timestamp) })
	}
	a.Release()
}

func (d *Service) mutateRows(c *rpc.Call) {
	var r api.MutateRowsRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	if metadata.IsSystem(r.Table) {
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	k := &rowsCall{d: d, c: c, table: r.Table, view: r.View, id: r.TableID, rows: r.Rows, m: d.Quotas.Meter(c, r.Table, true), outcomes: make([]rowOutcome, len(r.Rows))}
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
	d        *Service
	c        *rpc.Call
	table    string
	view     string // to which the call is confined; empty for the whole table
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
	o.access = k.d.Authz.Access(k.c, k.table, k.view)
	switch refused := k.refused.Load(); {
	case o.err != nil: // over quota
	case k.c.Expired():
		o.err = reply.Expired("the deadline passed before the row's turn came")
	case refused != nil:
		o.err = *refused
	default:
		k.d.Tablets.TabletsOf(k.table).For(o.access.Of(true)).Table(k.id).Traced(k.c.Trace()).Apply(k.table, &k.rows[i], func(timestamp int64, err error) {
			o.timestamp, o.err = timestamp, err
			if err != nil && errors.Is(err, api.ErrNotServing) {
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
			o.err = o.access.Settle(k.d.Ctx)
		}
		if o.err != nil {
			o.err = k.d.Tablets.Misrouted(o.access, o.err, k.table, k.id, k.rows[i].Row)
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

func (d *Service) checkAndMutate(c *rpc.Call) {
	var r api.CheckAndMutateRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	a := d.Authz.Access(c, r.Table, r.View)
	defer a.Release()
	if metadata.IsSystem(r.Table) && (!r.System || a != nil) {
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	f, err := d.program(c, r.Table, r.View, r.Predicate)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	m := d.Quotas.Meter(c, r.Table, true)
	if err := m.TakeBoth(r.True, r.False); err != nil {
		reply.Fail(c, err)
		return
	}
	turn := d.turnsOf(c, r.Table, f)
	defer turn.release()
	matched, err := turn.in(d.Tablets.TabletsOf(r.Table).For(a.Of(true)).Table(r.TableID)).Traced(c.Trace()).CheckAndMutate(c.Context(), r.Table, r.Row, f, r.True, r.False)
	if err == nil {
		rm := table.RowMutation{Row: r.Row, Mutations: r.False}
		if matched {
			rm.Mutations = r.True
		}
		m.Charge(quota.WriteOps, 0, rm.Size()) // the bytes that the filter read are not known here
		err = a.Settle(d.Ctx)
	}
	if err != nil {
		d.refuseBoth(c, a, m, err, r.Table, r.TableID, r.Row)
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Bool(matched) })
}

func (d *Service) readModifyWrite(c *rpc.Call) {
	var r api.ReadModifyWriteRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	if metadata.IsSystem(r.Table) {
		reply.Fail(c, api.ErrSystemTable)
		return
	}
	a := d.Authz.Access(c, r.Table, r.View)
	defer a.Release()
	m := d.Quotas.Meter(c, r.Table, true)
	if err := m.TakeBoth([]table.Mutation{{Op: table.OpSet}}); err != nil { // rules add data
		reply.Fail(c, err)
		return
	}
	row, err := d.Tablets.TabletsOf(r.Table).For(a.Of(true)).Table(r.TableID).Traced(c.Trace()).ReadModifyWrite(c.Context(), r.Table, r.Row, r.Rules, r.RowBytes)
	if err == nil {
		bytes := int64(len(r.Row) + cellsBytes(row.Cells))
		m.Charge(quota.WriteOps, 0, bytes)
		m.Charge(quota.ReadOps, 0, bytes)
		err = a.Settle(d.Ctx)
	}
	if err != nil {
		d.refuseBoth(c, a, m, err, r.Table, r.TableID, r.Row)
		return
	}
	c.Reply(func(e *wire.Encoder) { api.AppendRow(e, row.Key, row.Cells) })
}

// refuseBoth refunds and fails a call that was charged by TakeBoth.
func (d *Service) refuseBoth(c *rpc.Call, a *authz.Access, m quotas.Metered, err error, name string, id uint64, row []byte) {
	err = d.Tablets.Misrouted(a, err, name, id, row)
	m.RefundBoth(err)
	reply.Fail(c, err)
}
