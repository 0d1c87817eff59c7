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

// call is one method call, which may take several attempts.
type call struct {
	method string
	table  string // where it goes, with row
	row    []byte
	// safe calls may be sent again though an earlier attempt may have been executed.
	safe bool
	// change is true for calls whose unknown outcome matters: not for reads.
	change bool
	keep   bool // decode keeps the result's bytes
	encode func(*wire.Encoder)
	decode func(*wire.Decoder) error
}

// do makes a call, and makes it again where that is allowed. Errors: those of the
// node as Go errors, *UnreachableError, *AmbiguousError, ErrClosed, ctx's.
func (c *Client) do(ctx context.Context, k *call) error {
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
	addr string
	sent bool // the node may have seen it
}

func (c *Client) attempt(ctx context.Context, k *call) attempt {
	addr := c.locator.locate(k.table, k.row)
	s := c.node(addr).slot()
	conn, err := s.get(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return attempt{err, addr, false}
	}
	if k.keep {
		err = conn.CallKeep(ctx, k.method, k.encode, k.decode)
	} else {
		err = conn.Call(ctx, k.method, k.encode, k.decode)
	}
	if err == nil {
		return attempt{nil, addr, true}
	}
	var lost *rpc.ConnLostError
	if errors.As(err, &lost) {
		s.drop(conn, lost.Err)
		return attempt{err, addr, lost.Sent}
	}
	return attempt{err, addr, !errors.Is(err, rpc.ErrRequestTooLarge)}
}

// notify sends a notification if there is a connection for it.
func (c *Client) notify(method, table string, row []byte, encode func(*wire.Encoder)) {
	if conn := c.node(c.locator.locate(table, row)).slot().conn.Load(); conn != nil {
		_ = conn.Notify(c.ctx, method, encode)
	}
}

// retry takes a call on from a failed attempt.
func (c *Client) retry(ctx context.Context, k *call, a attempt) error {
	r := retrier{client: c, started: time.Now()}
	unknown := false
	for {
		v := c.judge(k, a)
		if unknown = unknown || v.unknown; unknown {
			v.err = ambiguous(k.method, v.err)
		}
		if !v.again || !r.wait(ctx, &v) {
			return v.err
		}
		if a = c.attempt(ctx, k); a.err == nil {
			c.budget.credit()
			return nil
		}
	}
}

// verdict is what a failed attempt means.
type verdict struct {
	err       error         // what the caller gets if this was the last attempt
	unknown   bool          // a change may have been made: no later attempt undoes that
	again     bool          // another attempt is allowed, and may help
	elsewhere bool          // and needs no pause as long as there are other nodes to try
	costs     bool          // another attempt is work for the node: it is taken from the budget
	pause     time.Duration // at least, before it
}

// judge is where invariants C1 and C2 are kept.
func (c *Client) judge(k *call, a attempt) verdict {
	var answer *rpc.Error
	var lost *rpc.ConnLostError
	var unreachable *UnreachableError
	switch {
	case errors.As(a.err, &answer):
		return c.judgeAnswer(k, a, answer)
	case a.sent && errors.As(a.err, &lost):
		err := error(&UnreachableError{a.addr, a.err})
		switch {
		case k.change:
			err = a.err
		case c.closed():
			err = ErrClosed
		}
		return verdict{err: err, unknown: k.change, again: k.safe && !c.closed(), costs: true}
	case a.sent:
		// The context ended, or the answer makes no sense.
		return verdict{err: a.err, unknown: k.change}
	case c.closed():
		return verdict{err: ErrClosed}
	case errors.As(a.err, &lost):
		return verdict{err: &UnreachableError{a.addr, a.err}, again: true, elsewhere: true}
	case errors.As(a.err, &unreachable):
		c.locator.wrong(k.table, k.row, a.addr)
		return verdict{err: unreachable, again: true, elsewhere: true}
	}
	return verdict{err: a.err}
}

// ambiguous makes err say that the outcome is unknown.
func ambiguous(method string, err error) error {
	if errors.Is(err, ErrAmbiguous) {
		return err
	}
	return &AmbiguousError{method, err}
}

// judgeAnswer judges an error that the node answered with.
func (c *Client) judgeAnswer(k *call, a attempt, answer *rpc.Error) verdict {
	v := verdict{err: api.FromRPC(a.err), again: answer.Retryable, costs: true}
	if k.change && unknownOutcome(answer) {
		v.unknown, v.again = true, false
	}
	if answer.Code == api.CodeNotServing {
		c.locator.wrong(k.table, k.row, a.addr)
	}
	var over *api.OverloadedError
	if errors.As(v.err, &over) {
		v.pause = over.RetryAfter
	}
	return v
}

// unknownOutcome tells whether an error that a node answered a change with leaves
// open whether the change was made. All but a few codes say that it was not.
func unknownOutcome(e *rpc.Error) bool {
	switch e.Code {
	case rpc.CodeInternal, rpc.CodeTooLarge:
		return !e.Retryable
	case rpc.CodeDeadlineExceeded:
		executed, ok := e.Details["executed"].(int64)
		return !ok || executed != 0
	}
	return false
}

// retrier paces the attempts of one call.
type retrier struct {
	client  *Client
	started time.Time
	moves   int // attempts elsewhere so far, without a pause
	pauses  *backoff.ExponentialBackOff
}

// wait waits before another attempt. It returns false if there must not be one:
// v.err then says why.
func (r *retrier) wait(ctx context.Context, v *verdict) bool {
	cfg := &r.client.cfg
	if cfg.RetryTimeMax < 0 {
		return false
	}
	if v.costs && !r.client.budget.spend() {
		return false
	}
	if v.elsewhere && r.moves < r.client.locator.alternatives() {
		r.moves++
		return true
	}
	if r.pauses == nil {
		r.pauses = newBackOff()
	}
	pause := r.pauses.NextBackOff()
	if v.pause > 0 {
		// All that were refused together were told the same time.
		pause = max(pause, v.pause+jitter(v.pause/4))
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
			v.err = fmt.Errorf("%w, while waiting to try again: %w", ctx.Err(), v.err)
		}
	case <-r.client.ctx.Done():
		v.err = ErrClosed
	}
	return false
}
