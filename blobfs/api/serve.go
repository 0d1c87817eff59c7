package api

import (
	"context"
	"errors"
	"sync"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// Serve registers the methods of a node's store with a server that does not serve yet. Each call
// uses the Peer that current returns at that time, or fails with its error.
//
// Calls of a stream are decoded on the connection's reader, which preserves their order, and passed
// on. The bytes of a piece stay in the request's buffer until the call is answered. Copy waits for
// other nodes. All other calls read from disk in a goroutine of their own.
func Serve(srv *rpc.Server, current func() (Peer, error)) {
	serveLogs(srv, current)
	serveGC(srv, current)
	for i := range shapes {
		sh := &shapes[i]
		mode := rpc.Spawned
		switch sh.method {
		case MethodBegin, MethodPiece, MethodSeal, MethodAbort:
			mode = rpc.Inline
		case MethodCopy:
			mode = rpc.Waiting
		}
		srv.Handle(sh.method, mode, func(c *rpc.Call) {
			r := request{shape: sh}
			err := r.decode(&c.Params, c.NumParams)
			if err != nil {
				c.Fail(ToRPC(err))
				return
			}
			p, err := current()
			if err != nil {
				c.Fail(ToRPC(err))
				return
			}
			if mode == rpc.Inline {
				r.serveStream(c, p)
				return
			}
			r.serve(c, p)
		})
	}
}

// serveStream passes a call of a stream on. The call outlives the handler.
func (r *request) serveStream(c *rpc.Call, p Peer) {
	done := func(err error) {
		if err != nil {
			c.Fail(ToRPC(err))
			return
		}
		c.Reply(nil)
	}
	ctx := context.Background()
	switch r.method {
	case MethodBegin:
		if len(r.nodes) >= ChainMax {
			done(ErrBadRequest)
			return
		}
		p.Begin(ctx, Begin{Stream: r.stream, Extent: r.extent, Offset: r.offset, Chain: r.nodes, HighPriority: r.priorityBytes}, done)
	case MethodPiece:
		p.Piece(ctx, r.stream, r.offset, r.data, done)
	case MethodSeal:
		s := Seal{Stream: r.stream, Length: r.length, CRC: r.crc, Last: r.last, Holders: r.holders}
		p.Seal(ctx, s, func(nodes []string, err error) {
			res := sealed{nodes: nodes}
			if err != nil && !errors.As(err, &res.failed) {
				c.Fail(ToRPC(err))
				return
			}
			c.Reply(res.append)
		})
	case MethodAbort:
		p.Abort(ctx, r.stream, done)
	}
}

// serve executes a call that needs no order.
func (r *request) serve(c *rpc.Call, p Peer) {
	ctx := c.Context()
	var reply func(*wire.Encoder)
	var err error
	switch r.method {
	case MethodRead, MethodReread:
		r.serveRead(c, p)
		return
	case MethodResume:
		var n int64
		n, err = p.Resume(ctx, r.stream)
		reply = func(e *wire.Encoder) { e.Int(n) }
	case MethodStat:
		var st local.ExtentStat
		st, err = p.Stat(ctx, r.extent)
		reply = func(e *wire.Encoder) { appendStat(e, &st) }
	case MethodList:
		var infos []local.ExtentInfo
		infos, err = p.List(ctx, r.extent, min(r.count, ListMax))
		reply = func(e *wire.Encoder) { appendInfos(e, infos) }
	case MethodDrop:
		err = p.Drop(ctx, r.extent, r.reason)
	case MethodDropBlob:
		var n int
		n, err = p.DropBlob(ctx, r.extent.Blob, r.reason)
		reply = func(e *wire.Encoder) { e.Int(int64(n)) }
	case MethodCopy:
		err = p.Copy(ctx, Copy{Ref: Ref{r.extent, r.crc}, From: r.nodes, Holders: r.holders})
	case MethodCheck:
		var all []Held
		all, err = p.Check(ctx, r.extents)
		reply = func(e *wire.Encoder) { appendHeld(e, all) }
	case MethodSetHolders:
		err = p.SetHolders(ctx, r.extent, r.holders)
	case MethodVerify:
		err = p.Verify(ctx, Ref{r.extent, r.crc})
	default:
		panic("BUG: method without a handler: " + r.method)
	}
	if err != nil {
		c.Fail(ToRPC(err))
		return
	}
	c.Reply(reply)
}

// readBuffers are buffers for reads.
var readBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

func (r *request) serveRead(c *rpc.Call, p Peer) {
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	if cap(*buf) < r.count {
		*buf = make([]byte, 0, r.count)
	}
	b := (*buf)[:r.count]
	var err error
	switch {
	case r.method == MethodReread:
		err = p.Reread(c.Context(), r.stream, b, r.offset)
	case r.toCopy:
		err = p.ReadToCopy(c.Context(), Ref{r.extent, r.crc}, b, r.offset)
	default:
		err = p.Read(c.Context(), Ref{r.extent, r.crc}, b, r.offset)
	}
	if err != nil {
		c.Fail(ToRPC(err))
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Bin(b) })
}
