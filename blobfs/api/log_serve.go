package api

import (
	"context"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// serveLogs registers the log methods. An append is decoded on the connection's reader, which
// preserves its order, and queued. A refill waits for other nodes.
func serveLogs(srv *rpc.Server, current func() (Peer, error)) {
	for i := range logShapes {
		sh := &logShapes[i]
		mode := rpc.Spawned
		switch sh.method {
		case MethodLogAppend:
			mode = rpc.Inline
		case MethodLogRefill:
			mode = rpc.Waiting
		}
		srv.Handle(sh.method, mode, func(c *rpc.Call) {
			r := logRequest{logShape: sh}
			err := r.decode(&c.Params, c.NumParams)
			var p Peer
			if err == nil {
				p, err = current()
			}
			if err != nil {
				c.Fail(ToRPC(err))
				return
			}
			if mode == rpc.Inline {
				r.serveAppend(c, p)
				return
			}
			reply, err := r.serve(c.Context(), p)
			if err != nil {
				c.Fail(ToRPC(err))
				return
			}
			c.Reply(reply)
		})
	}
}

// serveAppend queues an append. The call outlives the handler.
func (r *logRequest) serveAppend(c *rpc.Call, p Peer) {
	a := local.LogAppend{Log: r.log, Seq: r.seq, Epoch: r.epoch, Start: r.start, Pos: r.pos, Frames: r.frames}
	p.AppendLog(context.Background(), a, func(length int64, err error) {
		if err != nil {
			c.Fail(ToRPC(err))
			return
		}
		c.Reply(func(e *wire.Encoder) { e.Int(length) })
	})
}

func (r *logRequest) serve(ctx context.Context, p Peer) (reply func(*wire.Encoder), err error) {
	switch r.method {
	case MethodLogOpen:
		var capacity int64
		capacity, err = p.OpenLog(ctx, local.LogOpen{Log: r.log, Server: r.server, Seq: r.seq, Epoch: r.epoch, Salt: r.salt, HighPriority: r.highPriority})
		reply = func(e *wire.Encoder) { e.Int(capacity) }
	case MethodLogFence:
		var states []logproto.State
		states, err = p.FenceLog(ctx, r.log, r.epoch)
		reply = func(e *wire.Encoder) { appendLogStates(e, states) }
	case MethodLogCut:
		err = p.CutLog(ctx, r.cut())
	case MethodLogRefill:
		err = p.RefillLog(ctx, r.cut(), r.nodes)
	case MethodLogStat:
		var info local.LogReplicaInfo
		info, err = p.StatLog(ctx, r.log, r.seq)
		reply = func(e *wire.Encoder) { appendLogInfo(e, &info) }
	case MethodLogRead:
		b := make([]byte, r.count)
		var n int
		n, err = p.ReadLog(ctx, LogRead{Log: r.log, Seq: r.seq, Start: r.start, Length: r.length}, b, r.offset)
		reply = func(e *wire.Encoder) { e.Bin(b[:n]) }
	case MethodLogDrop:
		err = p.DropLog(ctx, r.log, r.seq)
	case MethodLogVerify:
		err = p.VerifyLog(ctx, r.log, r.seq)
	case MethodLogList:
		var infos []local.LogReplicaInfo
		infos, err = p.ListLogs(ctx, r.log, r.seq, min(r.count, ListMax))
		reply = func(e *wire.Encoder) { appendLogInfos(e, infos) }
	default:
		panic("BUG: method without a handler: " + r.method)
	}
	return reply, err
}
