package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// ApplyAll applies many mutations, each by itself as Apply does. It sends them to each server in
// batches of up to Config.BatchRows and BatchBytes, with BatchesInFlight batches in flight.
// Mutations of one row in different batches may be applied in any order.
//
// It returns nil if all mutations are durable. Otherwise it returns a *BatchError with the error of
// each mutation, as Apply would have returned it.
func (t *Table) ApplyAll(ctx context.Context, ms []*RowMutation, opts ...ApplyOption) error {
	o := t.client.applyOptions(opts)
	errs := make([]error, len(ms))
	senders := newSenders(t.client.cfg.BatchesInFlight)
	r := router{table: t}
	open := map[string]*batch{} // by address; "" holds rows to be located later
	for i, m := range ms {
		if errs[i] = m.check(); errs[i] != nil {
			continue
		}
		to, _ := r.route(ctx, m.rm.Row)
		addr := to.node.address()
		b, n := open[addr], m.Size()
		if b != nil && (len(b.todo) == t.client.cfg.BatchRows || b.bytes+n > t.client.cfg.BatchBytes) {
			full := b
			senders.start(func() { full.apply(ctx) })
			b = nil
		}
		if b == nil {
			b = &batch{table: t, ms: ms, errs: errs, opts: &o}
			open[addr] = b
		}
		b.todo = append(b.todo, i)
		b.bytes += n
	}
	for _, b := range open {
		senders.start(func() { b.apply(ctx) })
	}
	senders.wait()
	return batchError(errs)
}

func batchError(errs []error) error {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return &BatchError{errs, failed}
}

// batch holds mutations that are sent together.
type batch struct {
	table *Table
	ms    []*RowMutation // of the whole ApplyAll
	errs  []error        // parallel to ms
	todo  []int          // indexes of those not applied yet
	bytes int64          // their initial size
	opts  *applyOptions
	// unknown holds the indexes of those that an earlier attempt may have applied.
	unknown map[int]bool
}

// apply sends the batch, and resends mutations that were rejected with a retryable error or are
// replayable.
func (b *batch) apply(ctx context.Context) {
	r := retrier{calls: &b.table.client.calls, started: time.Now()}
	for len(b.todo) > 0 {
		v := b.round(ctx)
		if len(b.todo) == 0 || !r.wait(ctx, &v) {
			return
		}
	}
}

// round sends the mutations in todo to their servers; these are several if tablets have moved. It
// leaves in todo the mutations that may be sent again, with their errors set in case they are not.
// The decision is for the retrier.
func (b *batch) round(ctx context.Context) decision {
	row := func(i int) []byte { return b.ms[i].rm.Row }
	again := decision{elsewhere: true}
	var left []int
	r := router{table: b.table}
	for _, g := range r.split(ctx, b.todo, row) {
		if g.err == nil {
			left = append(left, b.send(ctx, &r, &g, &again)...)
			continue
		}
		v := b.table.client.calls.classify(&call{}, attempt{err: g.err})
		for _, i := range g.items {
			b.failed(i, v.err, false)
		}
		if v.retryable {
			left = append(left, g.items...)
			again.join(v)
		}
	}
	b.todo = left
	return again
}

// send makes one call for a group and returns the indexes of mutations that may be sent again.
func (b *batch) send(ctx context.Context, r *router, g *group, again *decision) (left []int) {
	calls := &b.table.client.calls
	row := func(i int) []byte { return b.ms[i].rm.Row }
	req := api.MutateRowsRequest{TableOptions: api.TableOptions{View: b.table.view}, Table: b.table.name}
	k := call{method: api.MethodMutateRows, table: b.table.name, row: row(g.items[0]), id: &req.TableID, traceID: &req.TraceID, dest: g.to, change: true}
	k.encode = func(e *wire.Encoder) {
		req.AppendEach(e, len(g.items), func(at int) *table.RowMutation { return &b.ms[g.items[at]].rm })
	}
	k.decode = func(d *wire.Decoder) error {
		return api.DecodeMutateResults(d, len(g.items), func(at int, _ int64, failed *rpc.Error) {
			i := g.items[at]
			if failed == nil {
				b.errs[i] = nil
				return
			}
			v := calls.classify(&k, attempt{err: failed, to: r.sentTo(g, row(i)), sent: true})
			b.failed(i, v.err, v.unknown)
			if v.retryable || errors.Is(v.err, api.ErrOutcomeUnknown) && b.opts.replayable(b.ms[i]) {
				left = append(left, i)
				again.join(v)
			}
		})
	}
	err := calls.do(ctx, &k)
	if err == nil {
		return left
	}
	// The call as a whole failed, after its own retries. Only mutations that were misrouted, or
	// whose response was lost, may be sent again.
	left = nil
	if k.misrouted.relocate {
		r.invalidate(g, broken, row)
		again.join(k.misrouted)
	}
	unknown := errors.Is(err, ErrAmbiguous)
	for _, i := range g.items {
		b.failed(i, err, unknown)
		if k.misrouted.retryable || unknown && errors.Is(err, rpc.ErrConnLost) && b.opts.replayable(b.ms[i]) {
			left = append(left, i)
		}
	}
	if unknown && len(left) > 0 {
		r.invalidate(g, broken, row)
		again.join(decision{err: err, usesBudget: true})
	}
	return left
}

// failed records the error of mutation i. Once ambiguous, it stays ambiguous.
func (b *batch) failed(i int, err error, unknown bool) {
	if unknown {
		if b.unknown == nil {
			b.unknown = make(map[int]bool)
		}
		b.unknown[i] = true
	}
	if b.unknown[i] {
		err = ambiguous(api.MethodMutateRows, err)
	}
	b.errs[i] = err
}

// senders runs a bounded number of functions concurrently.
type senders struct {
	limit chan struct{}
	group sync.WaitGroup
}

func newSenders(n int) *senders { return &senders{limit: make(chan struct{}, n)} }

// start runs f on a goroutine as soon as fewer than the bound are running.
func (s *senders) start(f func()) {
	s.limit <- struct{}{}
	s.group.Go(func() {
		defer func() { <-s.limit }()
		f()
	})
}

func (s *senders) wait() { s.group.Wait() }

// errAnswer is the error of a response with an unexpected result.
func errAnswer(format string, args ...any) error {
	return fmt.Errorf("malformed response: %s", fmt.Sprintf(format, args...))
}
