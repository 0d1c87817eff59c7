package rpc

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
)

const (
	// callBytes is the overhead of a request in flight, in bytes, that is charged to the memory
	// gate.
	callBytes = 768
	// pooledParamsMax is the largest params buffer kept with a pooled Call, in bytes.
	pooledParamsMax = 16 << 10
)

// Call is one request or notification on the server.
//
// Its handler answers it exactly once, with Reply or Fail, from any goroutine, before or after the
// handler returns. After the answer the Call and everything that aliases Params are reused for
// other requests, unless Retain was called before. A Call that is never answered stays in flight
// forever.
type Call struct {
	// Params reads the elements of the request's params array, from the first one. The bytes have
	// been checked: values are complete, nest no deeper than 32, and every count and length is
	// within the message. Offsets in its errors count from the first element.
	Params wire.Decoder
	// NumParams is the number of elements in Params.
	NumParams int

	conn       *serverConn
	method     *method
	id         uint32
	notify     bool
	keep       bool
	identity   any // set by SetIdentity; nil: the peer's identity
	owner      string
	workerSlot *workerSlot // of the worker that runs the call; nil outside workers
	onAnswer   func(error) error
	arrived    time.Time
	began      time.Time // when the handler was called; zero before
	deadline   time.Time
	buf        []byte // holds the params; owned by the Call
	charge     int64  // bytes taken from the memory gate
	onSent     func() // called when the response has left memory
	ctx        context.Context
	cancel     context.CancelFunc
	trace      trace.Record  // in use if ServerConfig.TraceEvery is set
	state      atomic.Uint64 // odd while the call is live; the higher bits are a generation
}

var calls = sync.Pool{New: func() any { return new(Call) }}

// Method returns the method's name.
func (c *Call) Method() string { return c.method.name }

// Peer returns the connection that the request came on.
func (c *Call) Peer() *Peer { return &c.conn.peer }

// Identity returns the identity set by SetIdentity, or else Peer().Identity.
func (c *Call) Identity() any {
	if c.identity != nil {
		return c.identity
	}
	return c.conn.peer.Identity
}

// SetIdentity sets the identity of the call, for requests that the peer forwards for another
// principal.
func (c *Call) SetIdentity(identity any) { c.identity = identity }

// Demote makes the peer of the request one that is not preferred, for the further requests of its
// connection (ServerConfig.Preferred). It reports false, and changes nothing, if that would use a
// connection that is reserved for preferred peers. The connection should then be closed.
func (c *Call) Demote() bool { return c.conn.demote() }

// OnAnswer makes Reply and Fail call f before they answer. f gets the error of Fail, or nil for
// Reply, and a non-nil result of f is the answer instead. f runs on the goroutine that answers and
// may block only if that goroutine may. Nil removes f.
func (c *Call) OnAnswer(f func(err error) error) { c.onAnswer = f }

// Deadline returns the time at which the caller stops waiting; the zero Time means that there is
// none.
func (c *Call) Deadline() time.Time { return c.deadline }

// SetTimeout sets the deadline to d after the request's arrival, unless the present one is earlier.
// It is for requests that carry a timeout in their params. Call it before Context.
func (c *Call) SetTimeout(d time.Duration) {
	if at := c.arrived.Add(d); c.deadline.IsZero() || at.Before(c.deadline) {
		c.deadline = at
	}
}

// Expired reports whether the deadline has passed.
func (c *Call) Expired() bool {
	return !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

// Context returns a context that ends at the deadline, at the answer, or with the connection. The
// first call creates it and must not be concurrent with others.
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

// Retain leaves the Call and the bytes of Params to the garbage collector, so that they stay valid
// after the answer. Call it before Reply or Fail.
func (c *Call) Retain() { c.keep = true }

// OnSent makes f run when the response has left memory: it was written to the connection or
// dropped. f must not block. Call OnSent before Reply or Fail; the call must then be answered.
func (c *Call) OnSent(f func()) { c.onSent = f }

// Reply answers with the one value that write appends. If write is nil or appends nothing, the
// result is nil. A result over the message size limit becomes CodeTooLarge. Reply never blocks on
// the network. If the connection has ended, the response is dropped.
func (c *Call) Reply(write func(*wire.Encoder)) {
	if f := c.onAnswer; f != nil {
		c.onAnswer = nil
		if err := f(nil); err != nil {
			c.Fail(err)
			return
		}
	}
	if c.notify {
		c.mustFinish(nil, nil)
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
		c.finishError(&Error{Code: CodeTooLarge, Message: "result too large",
			Details: map[string]any{"limit": limit, "got": got}})
		return
	}
	c.mustFinish(enc, nil)
}

// Fail answers with AsError(err).
func (c *Call) Fail(err error) {
	if f := c.onAnswer; f != nil {
		c.onAnswer = nil
		if other := f(err); other != nil {
			err = other
		}
	}
	c.finishError(AsError(err))
}

// finishError answers with e. A notification has no answer; its error is only counted.
func (c *Call) finishError(e *Error) {
	if c.notify {
		c.mustFinish(nil, e)
		return
	}
	c.mustFinish(c.encodeError(e), e)
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

func (c *Call) mustFinish(enc *wire.Encoder, e *Error) {
	moment.Pass("before an answer is sent", c.method.name)
	if !c.finish(c.state.Load(), enc, e) {
		panic("BUG: second answer to one call")
	}
}

// finish sends the response enc, which may be nil, and recycles the call. The error e is counted, if
// it is not nil. finish reports false and does nothing if the call is no longer live in the
// generation that state holds.
func (c *Call) finish(state uint64, enc *wire.Encoder, e *Error) bool {
	if state&1 == 0 || !c.state.CompareAndSwap(state, state+1) {
		return false
	}
	conn, charge, sent := c.conn, c.charge, c.onSent
	took := time.Since(c.arrived)
	c.method.stats.done(took, e)
	if conn.srv.cfg.Traced != nil {
		c.reportTraced(took, e)
	}
	if e != nil && conn.srv.cfg.Failed != nil {
		conn.srv.cfg.Failed(c.traced(took, e))
	}
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
	conn.srv.memory.release(charge)
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
	c.deadline, c.began, c.ctx, c.cancel, c.onSent = time.Time{}, time.Time{}, nil, nil, nil
	c.identity, c.onAnswer, c.owner, c.workerSlot = nil, nil, "", nil
	calls.Put(c)
}

// newCall takes a Call from the pool and makes it live. If owned is set, the call keeps q.params;
// otherwise it copies them.
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

// errConnEnded is counted for a call that was not run because its connection had ended. It has the
// code of a call whose context ended for that reason.
var errConnEnded = AsError(context.Canceled)

// run runs the handler, or rejects the call if the deadline has passed. The caller must not use the
// Call afterwards.
func (c *Call) run() {
	conn, m, state := c.conn, c.method, c.state.Load()
	if conn.dead.Load() { // there is no client to answer
		conn.srv.count.dropped.Add(1)
		c.finish(state, nil, errConnEnded)
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
			if broken, ok := p.(*invariant.Broken); ok {
				panic(broken) // going on would lose data silently
			}
			conn.srv.count.panics.Add(1)
			conn.srv.log.Error("handler panicked", "method", m.name, "panic", p, "stack", string(debug.Stack()))
			c.panicked(state)
		}
	}()
	if conn.srv.cfg.Traced != nil {
		c.began = time.Now()
		c.Trace().Mark(c.began)
	}
	if m.admit != nil {
		if err := m.admit(c); err != nil {
			c.Fail(err)
			return
		}
	}
	m.handler(c)
}

// panicked answers for a handler that panicked, unless it had answered before. The handler may have
// leaked the Call or its bytes to other goroutines, so neither is reused.
func (c *Call) panicked(state uint64) {
	if c.state.Load() != state {
		return
	}
	c.keep = true
	e := Errorf(CodeInternal, "handler panicked")
	var enc *wire.Encoder
	if !c.notify {
		enc = c.encodeError(e)
	}
	c.finish(state, enc, e)
}
