package api

import (
	"context"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// serveGC registers the methods of garbage collection.
func serveGC(srv *rpc.Server, current func() (Peer, error)) {
	for i := range gcShapes {
		sh := &gcShapes[i]
		srv.Handle(sh.method, rpc.Spawned, func(c *rpc.Call) {
			r := gcRequest{gcShape: sh}
			err := r.decode(&c.Params, c.NumParams)
			var p Peer
			if err == nil {
				p, err = current()
			}
			var reply func(*wire.Encoder)
			if err == nil {
				reply, err = r.serve(c.Context(), p)
			}
			if err != nil {
				c.Fail(ToRPC(err))
				return
			}
			c.Reply(reply)
		})
	}
}

func (r *gcRequest) serve(ctx context.Context, p Peer) (reply func(*wire.Encoder), err error) {
	alarm := ""
	reply = func(e *wire.Encoder) { e.Str(alarm) }
	switch r.method {
	case MethodSweepBegin:
		alarm, err = p.BeginSweep(ctx, r.round)
	case MethodSweepPins:
		ids, errPins := p.SweepPins(ctx, r.round, r.blob, r.count)
		return func(e *wire.Encoder) { appendBlobIDs(e, ids) }, errPins
	case MethodSweepExtents:
		all, errList := p.SweepExtents(ctx, r.round, r.count)
		return func(e *wire.Encoder) { appendList(e, all, appendExtentID) }, errList
	case MethodSweepJudge:
		alarm, err = p.JudgeExtents(ctx, r.round, r.extent, r.extents)
	case MethodSweepReplicas:
		all, errList := p.SweepReplicas(ctx, r.round, r.count)
		return func(e *wire.Encoder) { appendSweepReplicas(e, all) }, errList
	case MethodSweepJudgeReplicas:
		alarm, err = p.JudgeReplicas(ctx, r.round, r.replica, r.replicas)
	case MethodSweepEnd:
		swept, errEnd := p.EndSweep(ctx, r.round)
		return func(e *wire.Encoder) { appendSwept(e, &swept) }, errEnd
	case MethodSweepRevive:
		n, errRevive := p.ReviveBlob(ctx, r.blob)
		return func(e *wire.Encoder) { e.Int(int64(n)) }, errRevive
	case MethodSweepClear:
		return nil, p.ClearAlarm(ctx)
	default:
		panic("BUG: method without a handler: " + r.method)
	}
	return reply, err
}
