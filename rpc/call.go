package rpc

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/wire"
)

const (
	// callBytes is what a request in flight costs beyond its bytes, for the memory gate.
	callBytes = 512
	// pooledParamsMax is the largest params buffer kept with a pooled Call, in bytes.
	pooledParamsMax = 16 << 10
)

// Call is one request or notification in the hands of its handler.
//
// The handler answers it exactly once, with Reply or Fail, from any goroutine,
// before or after it returns. From the moment of the answer the Call and all that
// aliases Params belong to somebody else, unless Keep was called before. A Call
// that is never answered holds its place in flight for ever.
type Call struct {
	// Params reads the elements of the request's params array, the first one next.
	// Its bytes have been checked: whole values, no deeper than 32, no count or
	// length that lies. Offsets in its errors count from the first element.
	Params wire.Decoder
	// NumParams is the number of those elements.
	NumParams int

	conn     *serverConn
	method   *method
	id       uint32
	notify   bool
	keep     bool
	as       any // who the call is for, if that is not the peer
	owner    string
	seat     *seat // of the worker that runs it, if one does
	onAnswer func(error) error
	arrived  time.Time
	deadline time.Time
	buf      []byte // holds the params; the Call's own
	charge   int64  // taken from the memory gate
	onSent   func() // of the answer
	ctx      context.Context
	cancel   context.CancelFunc
	state    atomic.Uint64 // odd while the call is live; the rest is a generation
}

var calls = sync.Pool{New: func() any { return new(Call) }}

// Method returns the method's name.
func (c *Call) Method() string { return c.method.name }

// Peer returns the connection that the request came on.
func (c *Call) Peer() *Peer { return &c.conn.peer }

// Identity is who the call is for: Peer().Identity, unless SetIdentity has said otherwise.
func (c *Call) Identity() any {
	if c.as != nil {
		return c.as
	}
	return c.conn.peer.Identity
}

// SetIdentity makes the call one for somebody else than its peer, who passes it on.
func (c *Call) SetIdentity(who any) { c.as = who }

// OnAnswer has f see the answer before it is given: the error of Fail, or nil for Reply.
// What f returns is the answer in its place. It runs where the handler answers, and may
// wait if that may. Nil takes it back.
func (c *Call) OnAnswer(f func(err error) error) { c.onAnswer = f }

// Deadline returns when the caller stops waiting; the zero Time means never.
func (c *Call) Deadline() time.Time { return c.deadline }

// SetTimeout moves the deadline to d after the request's arrival, unless it is
// earlier already: for requests that carry a timeout in their params. Call it
// before Context.
func (c *Call) SetTimeout(d time.Duration) {
	if at := c.arrived.Add(d); c.deadline.IsZero() || at.Before(c.deadline) {
		c.deadline = at
	}
}

// Expired tells whether the deadline has passed.
func (c *Call) Expired() bool {
	return !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

// Context returns a context that ends at the deadline, at the answer, or with the
// connection. It is made on first use, which must not be concurrent.
func (c *Call) Context() context.Context {
	if c.ctx == nil {
		if c.deadline.IsZero() {
			c.ctx, c.cancel = context.WithCancel(c.conn.peer.ctx)
		} else {
			c.ctx, c.cancel = context.WithDeadline(c.conn.peer.ctx, c.deadline)
		}
	}
	return c.ctx
}

// Keep leaves the Call and the bytes of Params to the garbage collector, so that
// they stay valid after the answer. Call it before Reply or Fail.
func (c *Call) Keep() { c.keep = true }

// OnSent has f called when the answer has left memory: it was written to the connection, or given up. f must not wait. Call
// it before Reply or Fail, of which there must be one then.
func (c *Call) OnSent(f func()) { c.onSent = f }

// Reply answers with the one value that write appends; nil, or a write that
// appends nothing, answers nil. A result over the message size limit becomes
// CodeTooLarge. It never blocks on the network. If the connection is gone, the
// answer is dropped.
func (c *Call) Reply(write func(*wire.Encoder)) {
	if f := c.onAnswer; f != nil {
		c.onAnswer = nil
		if err := f(nil); err != nil {
			c.Fail(err)
			return
		}
	}
	if c.notify {
		c.mustFinish(nil, false)
		return
	}
	enc := wire.GetEncoder()
	beginResponse(enc, c.conn.peer.Framed, c.id)
	enc.Nil()
	start := enc.Len()
	if write != nil {
		write(enc)
	}
	if enc.Len() == start {
		enc.Nil()
	}
	if limit := c.conn.srv.cfg.MessageBytesMax; enc.Len() > limit {
		got := enc.Len()
		enc.Release()
		c.mustFinish(c.encodeError(&Error{Code: CodeTooLarge, Message: "result too large",
			Details: map[string]any{"limit": limit, "got": got}}), true)
		return
	}
	c.mustFinish(enc, false)
}

// Fail answers with err, see AsError.
func (c *Call) Fail(err error) {
	if f := c.onAnswer; f != nil {
		c.onAnswer = nil
		if other := f(err); other != nil {
			err = other
		}
	}
	if c.notify {
		c.mustFinish(nil, true)
		return
	}
	c.mustFinish(c.encodeError(AsError(err)), true)
}

func (c *Call) encodeError(e *Error) *wire.Encoder {
	return encodeErrorResponse(c.conn.peer.Framed, c.id, e)
}

func encodeErrorResponse(framed bool, id uint32, e *Error) *wire.Encoder {
	enc := wire.GetEncoder()
	beginResponse(enc, framed, id)
	appendError(enc, e)
	enc.Nil()
	return enc
}

func (c *Call) mustFinish(enc *wire.Encoder, failed bool) {
	if !c.finish(c.state.Load(), enc, failed) {
		panic("BUG: second answer to one call")
	}
}

// finish answers and recycles the call if it is still live in the generation that
// state names.
func (c *Call) finish(state uint64, enc *wire.Encoder, failed bool) bool {
	if state&1 == 0 || !c.state.CompareAndSwap(state, state+1) {
		return false
	}
	conn, charge, sent := c.conn, c.charge, c.onSent
	c.method.stats.done(time.Since(c.arrived), failed)
	if c.cancel != nil {
		c.cancel()
	}
	c.recycle()
	switch {
	case enc != nil:
		conn.sendThen(enc, sent)
	case sent != nil:
		sent()
	}
	conn.srv.memory.give(charge)
	conn.doneOne()
	return true
}

func (c *Call) recycle() {
	if c.keep {
		return
	}
	if cap(c.buf) > pooledParamsMax {
		c.buf = nil
	}
	c.Params, c.conn, c.method = wire.Decoder{}, nil, nil
	c.deadline, c.ctx, c.cancel, c.onSent = time.Time{}, nil, nil, nil
	c.as, c.onAnswer, c.owner, c.seat = nil, nil, "", nil
	calls.Put(c)
}

// newCall takes a Call from the pool and makes it live. q.params must be owned by
// the call when owned, and is copied otherwise.
func newCall(conn *serverConn, m *method, q request, owned bool, charge int64) *Call {
	c := calls.Get().(*Call)
	c.conn, c.method, c.id, c.notify, c.keep = conn, m, q.id, q.notify, false
	c.charge, c.NumParams = charge, q.n
	if owned {
		c.buf = q.params
	} else {
		c.buf = append(c.buf[:0], q.params...)
	}
	c.Params = wire.NewDecoder(c.buf)
	c.state.Add(1)
	return c
}

// run runs the handler, or refuses if the deadline has passed. The Call must not
// be touched after it.
func (c *Call) run() {
	conn, m, state := c.conn, c.method, c.state.Load()
	if conn.dead.Load() { // nobody would get the answer
		conn.srv.count.dropped.Add(1)
		c.finish(state, nil, true)
		return
	}
	if c.Expired() {
		conn.srv.count.late.Add(1)
		c.Fail(&Error{Code: CodeDeadlineExceeded, Message: "deadline passed before execution",
			Retryable: true, Details: map[string]any{"executed": 0}})
		return
	}
	defer func() {
		if p := recover(); p != nil {
			conn.srv.count.panics.Add(1)
			conn.srv.log.Error("handler panicked", "method", m.name, "panic", p, "stack", string(debug.Stack()))
			c.panicked(state)
		}
	}()
	if m.admit != nil {
		if err := m.admit(c); err != nil {
			c.Fail(err)
			return
		}
	}
	m.handler(c)
}

// panicked answers for a handler that panicked, unless it had answered before. The
// handler may have left the Call or its bytes with others, so neither is reused.
func (c *Call) panicked(state uint64) {
	if c.state.Load() != state {
		return
	}
	c.keep = true
	var enc *wire.Encoder
	if !c.notify {
		enc = c.encodeError(Errorf(CodeInternal, "handler panicked"))
	}
	c.finish(state, enc, true)
}
