package dataapi

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/fair"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// TurnsWaitMax bounds the requests of one user that wait for a turn. More are rejected. What they have read so far counts for the user's share
// of result memory.
const TurnsWaitMax = 256

// CostlyTurns is the number of requests that match long patterns with large values concurrently. It leaves half of the processors to all other
// work, which includes renewing the node's leases.
func CostlyTurns() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// turns are the turns of one call. It implements tablet.Turns.
type turns struct {
	gate *fair.Gate
	call *rpc.Call
	user string
	held bool
	// worked is the end of the part of the turn that the call's trace has; only valid while held.
	worked time.Time
}

// turnsPool has unused turns, so that a read with a filter allocates none.
var turnsPool = sync.Pool{New: func() any { return new(turns) }}

// turnsOf returns the turns of a call that evaluates f on a table, or nil if it needs none. They must be released.
func (d *Service) turnsOf(c *rpc.Call, name string, f *table.Program) *turns {
	if f == nil {
		return nil
	}
	return d.turnsFor(c, name)
}

// turnsFor returns the turns of a call about a table, which must be released. It is nil for nodes, which read METADATA with cheap filters.
func (d *Service) turnsFor(c *rpc.Call, name string) *turns {
	caller := authz.SubjectOf(c)
	if caller != nil && !caller.Restricted() || caller == nil && metadata.IsSystem(name) {
		return nil
	}
	t := turnsPool.Get().(*turns)
	*t = turns{gate: d.Costly, call: c, user: caller.Owner()}
	return t
}

// release ends the turn of t, which must not be used afterwards. t may be nil.
func (t *turns) release() {
	if t != nil {
		t.free() // the call may have been answered, so its trace is not touched
		*t = turns{}
		turnsPool.Put(t)
	}
}

// in returns the server with these turns, if t is not nil.
func (t *turns) in(as tablet.For) tablet.For {
	if t == nil {
		return as
	}
	return as.In(t)
}

// Take implements tablet.Turns. It ends with the call's connection, which the context of a single-row read does not. Errors:
// *api.OverloadedError if too many calls of the user wait, those of the call's context.
func (t *turns) Take(context.Context) error {
	if t.held && t.gate.Awaited() {
		t.End()
	} else if t.held {
		t.record()
	}
	return t.wait(t.gate.Acquire)
}

// Resume implements tablet.Turns. Errors: those of the call's context.
func (t *turns) Resume(context.Context) error { return t.wait(t.gate.AcquireFirst) }

// wait waits for a turn, unless the call has one or one is free. The call leaves its worker while it waits.
func (t *turns) wait(acquire func(ctx context.Context, user string) error) error {
	ctx := t.call.Context()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.held:
		return nil
	case t.gate.TryAcquire():
		t.held, t.worked = true, t.call.Trace().Now()
		return nil
	}
	t.call.LeavePool()
	r := t.call.Trace()
	began := r.Now()
	err := acquire(ctx, t.user)
	r.Since(trace.Turns, began)
	if errors.Is(err, fair.ErrCrowded) {
		return &api.OverloadedError{Reason: "too many requests of the user wait for their turn to work on filters", RetryAfter: 100 * time.Millisecond}
	}
	t.held, t.worked = err == nil, r.Now()
	return err
}

// End implements tablet.Turns.
func (t *turns) End() {
	if t.held {
		t.record()
	}
	t.free()
}

// free frees the turn, if there is one.
func (t *turns) free() {
	if t.held {
		t.held = false
		t.gate.Release()
	}
}

// record adds the part of the turn that has passed to the call's trace.
func (t *turns) record() {
	r := t.call.Trace()
	now := r.Now()
	r.Add(trace.Filter, t.worked, now.Sub(t.worked), 1)
	t.worked = now
}
