package rpc

import (
	"time"

	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
)

// TracedCall is a call that took long, or whose trace is kept: see ServerConfig.Traced. It and all that it points to are valid only until
// Traced returns.
type TracedCall struct {
	Method   string
	Peer     *Peer
	Identity any // as Call.Identity
	// Params reads the parameters from the first one; see Call.Params.
	Params    wire.Decoder
	NumParams int
	Bytes     int // of the parameters
	// Took is the time from the arrival of the request to its answer, Waited the part of it before its handler was called.
	Took, Waited time.Duration
	Err          *Error // nil: it succeeded
	Slow         bool   // it took SlowAfter or more
	// Trace is what the call did; nil if calls are not recorded.
	Trace *trace.Record
}

// Trace returns the record of the call, which is valid until the answer. It is nil if calls are not recorded.
func (c *Call) Trace() *trace.Record {
	if c.conn.srv.cfg.TraceEvery == 0 {
		return nil
	}
	return &c.trace
}

// reportTraced reports a call if it took long or its trace is kept.
func (c *Call) reportTraced(took time.Duration, e *Error) {
	cfg := &c.conn.srv.cfg
	if took >= cfg.SlowAfter || c.Trace().Kept() {
		cfg.Traced(c.traced(took, e))
	}
}

// traced returns the call as reported.
func (c *Call) traced(took time.Duration, e *Error) *TracedCall {
	s := &TracedCall{
		Method: c.method.name, Peer: &c.conn.peer, Identity: c.Identity(), Params: wire.NewDecoder(c.buf), NumParams: c.NumParams, Bytes: len(c.buf),
		Took: took, Waited: took, Err: e, Slow: took >= c.conn.srv.cfg.SlowAfter, Trace: c.Trace(),
	}
	if !c.began.IsZero() {
		s.Waited = c.began.Sub(c.arrived)
	}
	return s
}
