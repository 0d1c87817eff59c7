package api

import (
	"context"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// ServeCurrent registers the methods of the lock service with srv. It must be called before srv
// serves.
//
// A KeepAlive is decoded on the connection's reader and answered by the Service's callback. A
// pending KeepAlive takes an rpc.Call, some 700 bytes, and no goroutine. All other methods run in
// rpc.Waiting mode, because they may wait for locks and caches of other sessions, or for a majority
// that does not answer.
//
// current returns the Service for each call, or the error to answer with. node is set if the caller
// identifies itself as a node. current may inspect the caller in c. It must not retain the c of a
// KeepAlive, which is answered later.
func ServeCurrent(srv *rpc.Server, current func(c *rpc.Call, node bool) (Service, error)) {
	srv.Handle(MethodKeepAlive, rpc.Inline, func(c *rpc.Call) { serveKeepAlive(c, current) })
	for i := range shapes {
		sh := &shapes[i]
		if sh.method == MethodKeepAlive {
			continue
		}
		srv.Handle(sh.method, rpc.Waiting, func(c *rpc.Call) {
			r := request{shape: sh}
			if !begin(c, &r) {
				return
			}
			s, err := current(c, r.node)
			if err != nil {
				c.Fail(ToRPC(err))
				return
			}
			answer, err := r.serve(c.Context(), s)
			if err != nil {
				c.Fail(ToRPC(err))
				return
			}
			c.Reply(answer)
		})
	}
}

// begin decodes the request. If it cannot be served, begin answers with the error and returns
// false.
func begin(c *rpc.Call, r *request) bool {
	if err := r.decode(&c.Params, c.NumParams); err != nil {
		c.Fail(ToRPC(err))
		return false
	}
	if r.timeout > 0 {
		c.SetTimeout(r.timeout)
	}
	if c.Expired() {
		c.Fail(ToRPC(context.DeadlineExceeded))
		return false
	}
	return true
}

func serveKeepAlive(c *rpc.Call, current func(c *rpc.Call, node bool) (Service, error)) {
	r := request{shape: shapeOf[MethodKeepAlive]}
	if !begin(c, &r) {
		return
	}
	s, err := current(c, r.node)
	if err != nil {
		c.Fail(ToRPC(err))
		return
	}
	req := KeepAliveRequest{Session: r.session, Term: r.term, Acked: r.acked, Hang: r.hang, Caller: c.Context()}
	s.KeepAlive(context.Background(), req, func(resp KeepAliveResponse, err error) {
		if err != nil {
			c.Fail(ToRPC(err))
			return
		}
		c.Reply(func(e *wire.Encoder) { appendKeepAlive(e, &resp) })
	})
}

type answer = func(*wire.Encoder)

// serve calls the Service. A nil answer encodes as nil.
func (r *request) serve(ctx context.Context, s Service) (answer, error) {
	switch r.method {
	case MethodOpenSession:
		id, lease, err := s.OpenSession(ctx, r.name, r.lease)
		o := opened{id, lease}
		return o.append, err
	case MethodCloseSession:
		return nil, s.CloseSession(ctx, r.session)
	case MethodGet:
		return r.serveGet(ctx, s)
	case MethodStat:
		st, err := s.Stat(ctx, r.path)
		return func(e *wire.Encoder) { appendStat(e, &st, nil, false, CachePermission{}) }, err
	case MethodList:
		all, err := s.List(ctx, r.path)
		return func(e *wire.Encoder) { appendStats(e, all) }, err
	case MethodReadDirectory:
		p, err := s.ReadDirectory(ctx, r.path, DirectoryOptions{Since: r.since, After: r.after})
		return func(e *wire.Encoder) { appendDirectoryPage(e, &p) }, err
	case MethodAcquire:
		g, err := s.Acquire(ctx, r.session, r.path, r.mode, r.wait, r.delay)
		return func(e *wire.Encoder) { appendGrant(e, &g) }, err
	case MethodRelease:
		return nil, s.Release(ctx, r.session, r.path, r.hold)
	case MethodCheckSequencer:
		return nil, s.CheckSequencer(ctx, r.sequencer)
	case MethodWatch:
		n, err := s.Watch(ctx, r.session, r.path, r.kinds, r.seen)
		return func(e *wire.Encoder) { e.Uint(n) }, err
	case MethodUnwatch:
		return nil, s.Unwatch(ctx, r.session, r.path, r.watch)
	}
	return r.serveWrite(ctx, s)
}

func (r *request) serveWrite(ctx context.Context, s Service) (answer, error) {
	o := SetOptions{Session: r.session, Ephemeral: r.ephemeral, Guard: r.guard, Owner: r.owner, AbsentSince: r.absentSince,
		From: r.from, FromGeneration: r.fromGeneration}
	var n uint64
	var err error
	switch r.method {
	case MethodSet:
		n, err = s.Set(ctx, r.path, r.data, r.generation, o)
	case MethodDelete:
		return nil, s.Delete(ctx, r.path, r.generation, o)
	case MethodSetACL:
		n, err = s.SetACL(ctx, r.path, r.acl, o)
	default:
		panic("BUG: method without a handler: " + r.method)
	}
	return func(e *wire.Encoder) { e.Uint(n) }, err
}

func (r *request) serveGet(ctx context.Context, s Service) (answer, error) {
	var f File
	var perm CachePermission
	var err error
	if r.stale {
		f, err = s.GetStale(ctx, r.path)
	} else {
		f, perm, err = s.Get(ctx, r.path, r.session)
	}
	return func(e *wire.Encoder) { appendStat(e, &f.Stat, f.Data, true, perm) }, err
}
