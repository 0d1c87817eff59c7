package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// call is a method call, which may take several attempts.
type call struct {
	method  string
	table   string // determines the destination, with row
	row     []byte
	id      *uint64     // set in the request by each attempt; nil: the request has no table id
	traceID *[]byte     // api.Options.TraceID, set by do for calls that are traced
	onlyID  uint64      // the only table id that is accepted; 0: that of any table with the name
	dest    destination // if set, the only destination, instead of table and row
	sentTo  destination // destination of the last attempt
	// misrouted is set if the call failed because it was misrouted and dest fixes the destination.
	// The caller may make it again elsewhere.
	misrouted decision
	// safe means that the call may be sent again even if an earlier attempt may have been executed.
	safe bool
	// change means that an unknown outcome matters: true for all calls but reads.
	change bool
	lookup bool // does not wait behind requests of other calls
	keep   bool // decode retains the result's bytes
	encode func(*wire.Encoder)
	decode func(*wire.Decoder) error
}

// caller makes the calls of a Client. It retries a call where that is allowed.
type caller struct {
	cfg     *Config
	life    *lifetime
	locator *locator
	budget  *budget
	report  *reporter // nil: the client reports nothing
}

// query makes a read-only call whose parameters are names.
func (c *caller) query(ctx context.Context, method string, names []string, decode func(*wire.Decoder) error) error {
	req := api.NamesRequest{Names: names}
	return c.do(ctx, &call{method: method, safe: true, encode: req.Append, decode: decode})
}

// do makes a call and retries it where that is allowed. Errors: those of the node as Go errors,
// *UnreachableError, *AmbiguousError, ErrClosed, ctx's.
func (c *caller) do(ctx context.Context, k *call) (err error) {
	if k.traceID != nil {
		end := k.begin(ctx)
		defer func() { end(err) }()
	}
	if c.report != nil {
		began := time.Now()
		defer func() { c.report.note(k, time.Since(began), err) }()
	}
	a := c.attempt(ctx, k)
	if a.err == nil {
		c.budget.credit()
		return nil
	}
	return c.retry(ctx, k, a)
}

// attempt is the outcome of one attempt.
type attempt struct {
	err  error
	to   destination
	sent bool // the node may have received it
}

// attempt makes one attempt, at the destination that the call fixes or at the server of its row.
func (c *caller) attempt(ctx context.Context, k *call) attempt {
	to := k.dest
	if to.node == nil {
		var err error
		if to, err = c.locator.locate(ctx, k.table, k.row); err != nil {
			return attempt{err: err}
		}
	}
	k.sentTo = to
	if k.id != nil {
		*k.id = to.tableID()
		if k.onlyID != 0 && *k.id != 0 && *k.id != k.onlyID {
			return attempt{err: fmt.Errorf("table %q was dropped and its name reused: %w", k.table, ErrNoTable)}
		}
	}
	return k.send(ctx, to)
}

// send sends the call to a node and waits for the response.
func (k *call) send(ctx context.Context, to destination) attempt {
	s, conn, err := to.node.open(ctx, k.lookup)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return attempt{err, to, false}
	}
	if k.keep {
		err = conn.CallRetain(ctx, k.method, k.encode, k.decode)
	} else {
		err = conn.Call(ctx, k.method, k.encode, k.decode)
	}
	if err == nil {
		return attempt{nil, to, true}
	}
	var lost *rpc.ConnLostError
	if errors.As(err, &lost) {
		s.drop(conn, lost.Err)
		return attempt{err, to, lost.Sent}
	}
	return attempt{err, to, !errors.Is(err, rpc.ErrRequestTooLarge)}
}

// retry continues a call after a failed attempt.
func (c *caller) retry(ctx context.Context, k *call, a attempt) error {
	r := retrier{calls: c, started: time.Now()}
	unknown := false
	var unavailable error // the last ErrUnavailable of a node
	for {
		v := c.classify(k, a)
		if errors.Is(v.err, ErrUnavailable) {
			unavailable = v.err
		} else if unavailable != nil && !v.unknown && errors.Is(v.err, context.DeadlineExceeded) {
			v.err = unavailable // more specific than an expired deadline
		}
		if unknown = unknown || v.unknown; unknown {
			v.err = ambiguous(k.method, v.err)
		}
		if v.relocate && k.dest.node != nil && !unknown {
			k.misrouted = v
			return v.err
		}
		if !v.retryable || !r.wait(ctx, &v) {
			return v.err
		}
		c.report.retried()
		if a = c.attempt(ctx, k); a.err == nil {
			c.budget.credit()
			return nil
		}
	}
}

// decision is the consequence of a failed attempt.
type decision struct {
	err        error         // the call's error if this was the last attempt
	unknown    bool          // a change may have been made; no later attempt resets this
	retryable  bool          // another attempt is allowed and may succeed
	elsewhere  bool          // another attempt needs no pause while there are other nodes to try
	relocate   bool          // the tablet must be located again for another attempt
	renamed    bool          // the cached location is of a table that no longer has the name: another attempt looks up the table first
	usesBudget bool          // another attempt is work for the node and is taken from the budget
	pause      time.Duration // minimum pause before another attempt
	pauseMax   time.Duration // maximum pause before another attempt; 0 means the default
}

// The longest pauses of calls that wait for a tablet to be served. Unlike other retries, these cost
// the servers little: a rejected call is not started, and lookups are shared.
const (
	movedPauseMin      = 4 * time.Millisecond // the first pause; a move takes some tens of ms
	unassignedPauseMax = 250 * time.Millisecond
	movedPauseMax      = 500 * time.Millisecond
)

// classify evaluates a failed attempt. It maintains invariants C1 and C2.
func (c *caller) classify(k *call, a attempt) decision {
	var answer *rpc.Error
	var lost *rpc.ConnLostError
	var unreachable *UnreachableError
	var missing *lookupError
	switch {
	case errors.As(a.err, &missing):
		return c.classifyLookup(missing)
	case errors.As(a.err, &answer):
		return c.classifyAnswer(k, a, answer)
	case a.sent && errors.As(a.err, &lost):
		c.locator.invalidate(a.to, broken, nil)
		err := error(&UnreachableError{a.to.node.addr, a.err})
		switch {
		case k.change:
			err = a.err
		case c.life.closed():
			err = ErrClosed
		}
		again := k.safe && !c.life.closed()
		return decision{err: err, unknown: k.change, retryable: again, relocate: again, usesBudget: true, pauseMax: unreachablePauseMax(a.to)}
	case a.sent:
		// The context ended, or the response is malformed. A server that held the call until its
		// deadline may be frozen; the next call looks up the tablet's present location.
		if a.to.loc != nil && errors.Is(a.err, context.DeadlineExceeded) {
			c.locator.invalidate(a.to, broken, nil)
		}
		return decision{err: a.err, unknown: k.change}
	case c.life.closed():
		return decision{err: ErrClosed}
	case errors.As(a.err, &lost):
		c.locator.invalidate(a.to, broken, nil)
		return decision{err: &UnreachableError{a.to.node.addr, a.err}, retryable: true, elsewhere: true, relocate: true, pauseMax: unreachablePauseMax(a.to)}
	case errors.As(a.err, &unreachable) && identityRejected(unreachable.Err):
		return decision{err: unreachable}
	case errors.As(a.err, &unreachable):
		c.locator.invalidate(a.to, unreached, nil)
		return decision{err: unreachable, retryable: true, elsewhere: true, relocate: true, pauseMax: unreachablePauseMax(a.to)}
	}
	return decision{err: a.err}
}

// unreachablePauseMax returns the longest pause before a retry to a node that cannot be reached. If
// the node served the tablet of the call, the tablet is soon reassigned, and the retry only reads
// METADATA.
func unreachablePauseMax(to destination) time.Duration {
	if to.loc != nil {
		return unassignedPauseMax
	}
	return 0
}

// ambiguous wraps err in an *AmbiguousError unless it has one.
func ambiguous(method string, err error) error {
	if errors.Is(err, ErrAmbiguous) {
		return err
	}
	return &AmbiguousError{method, err}
}

// classifyAnswer evaluates an error response of the node.
func (c *caller) classifyAnswer(k *call, a attempt, answer *rpc.Error) decision {
	v := decision{err: api.FromRPC(a.err), retryable: answer.Retryable, usesBudget: true}
	if k.change && unknownOutcome(answer) {
		v.unknown, v.retryable = true, false
		if answer.Code == api.CodeOutcomeUnknown {
			// The tablet is, or soon will be, on another server; a replayable change goes there.
			c.locator.invalidate(a.to, stopped, nil)
			v.retryable, v.relocate, v.pauseMax = k.safe, k.safe, movedPauseMax
			return v
		}
	}
	var over *api.OverloadedError
	if errors.As(v.err, &over) {
		v.pause = over.RetryAfter
	}
	var used *api.QuotaError
	if errors.As(v.err, &used) {
		v.pause, v.usesBudget = used.RetryAfter, false // the node has set the pause
	}
	why, missing := misroutedReason(answer)
	if !missing {
		return v
	}
	if a.to.loc == nil && why == noTable {
		// Or the cluster got METADATA since the last root call, and the table is on another node.
		v.retryable = k.table != "" && c.locator.recheck()
		v.elsewhere, v.usesBudget = true, false
		return v
	}
	var hint *api.NotServingError
	errors.As(v.err, &hint)
	c.locator.invalidate(a.to, why, hint)
	v.relocate = true
	if a.to.loc != nil {
		v.retryable, v.elsewhere, v.usesBudget, v.pauseMax = true, why != stopped, false, movedPauseMax
		v.renamed = why == noTable
	}
	return v
}

// misroutedReason returns the reason for which a node rejected a call as misrouted; missing is
// false for other errors.
func misroutedReason(answer *rpc.Error) (why reason, missing bool) {
	switch answer.Code {
	case api.CodeNotServing:
		return notServing, true
	case api.CodeTableNotFound, api.CodeTableReplaced:
		return noTable, true
	case rpc.CodeUnavailable:
		return stopped, true
	}
	return 0, false
}

// classifyLookup evaluates the failure to locate the tablet of a call's row. Nothing was sent.
func (c *caller) classifyLookup(e *lookupError) decision {
	v := decision{err: e}
	if e.bare {
		v.err = e.err
	}
	var answer *rpc.Error
	var over *api.OverloadedError
	switch {
	case c.life.closed():
		return decision{err: ErrClosed}
	case errors.As(e.err, &over):
		v.retryable, v.usesBudget, v.pause = true, true, over.RetryAfter
	case errors.Is(e.err, api.ErrNotServing), errors.Is(e.err, api.ErrUnavailable):
		// METADATA's server waits for the lock service, or its tablet is soon reassigned. Lookups
		// are shared.
		v.retryable, v.pauseMax = true, unassignedPauseMax
	case errors.As(e.err, &answer):
		v.retryable, v.usesBudget = answer.Retryable, true
	case identityRejected(e.err):
	default:
		v.pauseMax = unassignedPauseMax // METADATA's tablet is soon reassigned
		v.retryable = errors.Is(e.err, ErrUnreachable) || errors.Is(e.err, rpc.ErrConnLost) || errors.Is(e.err, context.DeadlineExceeded)
	}
	return v
}

// unknownOutcome reports whether an error response to a change leaves open whether the change was
// made. Only a few codes do.
func unknownOutcome(e *rpc.Error) bool {
	switch e.Code {
	case api.CodeOutcomeUnknown:
		return true
	case rpc.CodeInternal, rpc.CodeTooLarge:
		return !e.Retryable
	case rpc.CodeDeadlineExceeded:
		executed, ok := e.Details["executed"].(int64)
		return !ok || executed != 0
	}
	return false
}

// retrier controls the pauses between the attempts of one call.
type retrier struct {
	calls   *caller
	started time.Time
	moves   int  // attempts without a pause so far
	renamed bool // one of them looked up a table whose cached location was stale
	pauses  *backoff.ExponentialBackOff
}

// wait waits before another attempt. It returns false if there must not be one; v.err is then the
// call's error.
func (r *retrier) wait(ctx context.Context, v *decision) bool {
	cfg := r.calls.cfg
	if cfg.RetryTimeMax < 0 {
		return false
	}
	if v.renamed && !r.renamed {
		r.renamed = true // at once: with a deadline that is near, the stale cache would look like the absence of the table
		return true
	}
	if v.usesBudget && !r.calls.budget.spend() {
		return false
	}
	if v.elsewhere && r.moves < r.calls.locator.alternatives() {
		r.moves++
		return true
	}
	if r.pauses == nil {
		r.pauses = newBackOff()
		if v.pauseMax > 0 {
			r.pauses.InitialInterval = movedPauseMin
		}
	}
	pause := r.pauses.NextBackOff()
	if v.pause > 0 {
		// All calls that were rejected together got the same time.
		pause = max(pause, v.pause+jitter(v.pause/4))
	} else if v.pauseMax > 0 && pause > v.pauseMax {
		pause = v.pauseMax/2 + jitter(v.pauseMax/2)
	}
	until := time.Now().Add(pause)
	if until.Sub(r.started) > cfg.RetryTimeMax {
		return false
	}
	if at, ok := ctx.Deadline(); ok && at.Before(until) {
		return false
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		if v.err != nil {
			v.err = fmt.Errorf("%w while waiting to retry: %w", ctx.Err(), v.err)
		}
	case <-r.calls.life.ctx.Done():
		v.err = ErrClosed
	}
	return false
}
