package node

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
)

// handleOwn registers the methods about this node and the location of rows.
func (n *Node) handleOwn() {
	// On the connection's reader: clients use it to check that the node is alive, however busy it is.
	inline := func(method string, _ rpc.Mode, h func(*rpc.Call)) { n.rpc.Handle(method, rpc.Inline, h) }
	n.answerNames(inline, api.MethodPing, 0, n.ping)
	n.answerNames(n.rpc.Handle, api.MethodStatus, 0, n.status)
	n.handle(api.MethodSampleRowKeys, rpc.Spawned, n.sampleRowKeys)
	n.handleNames(api.MethodRoot, 1, n.root)
}

// handleNames registers a method whose parameters are names.
func (n *Node) handleNames(method string, names int, h func(ctx context.Context, r *api.NamesRequest) (reply.Result, error)) {
	n.answerNames(n.handle, method, names, h)
}

// answerNames is handleNames with its own function for registering.
func (n *Node) answerNames(register func(string, rpc.Mode, func(*rpc.Call)), method string, names int,
	h func(ctx context.Context, r *api.NamesRequest) (reply.Result, error)) {
	register(method, rpc.Spawned, func(c *rpc.Call) {
		c.Retain() // a change may outlive the call
		var r api.NamesRequest
		if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, method, names), &r.Options) {
			return
		}
		var result reply.Result
		by := authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: method}
		if names > 0 {
			by.Name = r.Names[0]
		}
		ctx := authz.WithRequest(authz.WithSubject(c.Context(), by.Caller), by)
		do := func(ctx context.Context) (err error) {
			result, err = h(ctx, &r)
			return err
		}
		var err error
		if cancelledWithoutLeader[method] {
			err = n.whileLeader(ctx, do)
		} else {
			err = do(ctx)
		}
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(result)
	})
}

func (n *Node) ping(context.Context, *api.NamesRequest) (reply.Result, error) {
	p := api.Pong{Server: "stele", Version: Version(), Protocol: api.ProtocolVersion, Node: n.cfg.Name, Cluster: n.self.DurableCluster()}
	return p.Append, nil
}
