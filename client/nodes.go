package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Types of the results about nodes.
type (
	// NodeInfo is a node of the cluster.
	NodeInfo = api.NodeInfo
	// Activity is what a node has done lately.
	Activity = api.Activity
	// ReplicaTimes are the times of a node's log replicas.
	ReplicaTimes = api.ReplicaTimes
	// ClientProcesses are the client processes that reported to a node, and ClientProcess is one of them.
	ClientProcesses = api.ClientProcesses
	ClientProcess   = api.ClientProcess
	// LogLines are the last lines of a node's log, and LogLine is one of them.
	LogLines = api.LogLines
	LogLine  = api.LogLine
	// SlowRequests are requests to a node that took long, and SlowRequest is one of them.
	SlowRequests = api.SlowRequests
	SlowRequest  = api.SlowRequest
	// ErrorCount is the number of requests to a node that failed alike.
	ErrorCount = api.ErrorCount
	// SlowCount is the number of requests of one kind to a node that took long.
	SlowCount = api.SlowCount
	// Traces are requests to a node whose traces are kept, and Trace is one of them.
	Traces = api.Traces
	Trace  = api.Trace
	// AuditLines are the last lines of an audit log.
	AuditLines = api.AuditLines
	// RaftStatus is the state of the lock service.
	RaftStatus = api.RaftStatus
	// RaftServer is a member of the lock service's Raft group.
	RaftServer = api.RaftServer
)

// Nodes lists, drains and removes the nodes of a cluster.
type Nodes struct{ calls *caller }

// Nodes returns the administration of nodes.
func (c *Client) Nodes() Nodes { return Nodes{&c.calls} }

// List returns the nodes of the cluster, sorted by id, from the view of the node that answers.
// Errors: those of a node that cannot be reached or has not joined a cluster yet; ctx's.
func (n Nodes) List(ctx context.Context) (nodes []NodeInfo, err error) {
	err = n.calls.query(ctx, api.MethodListNodes, nil, func(d *wire.Decoder) (err error) {
		nodes, err = api.DecodeNodes(d)
		return err
	})
	return nodes, err
}

// Status returns the counters and gauges of the node at an address, NodeInfo.RPC. Errors: those of
// Client.Status.
func (n Nodes) Status(ctx context.Context, addr string) (*Status, error) {
	s := &api.Status{}
	req := api.NamesRequest{}
	to := destination{node: n.calls.locator.pool.node(addr)}
	return s, n.calls.do(ctx, &call{method: api.MethodStatus, dest: to, safe: true, encode: req.Append, decode: s.Decode})
}

// Activity returns what the node at an address, NodeInfo.RPC, has done in the last hour. Errors: those
// of Client.Status.
func (n Nodes) Activity(ctx context.Context, addr string) (*Activity, error) {
	a := &api.Activity{}
	req := api.NamesRequest{}
	to := destination{node: n.calls.locator.pool.node(addr)}
	return a, n.calls.do(ctx, &call{method: api.MethodActivity, dest: to, safe: true, encode: req.Append, decode: a.Decode})
}

// SlowRequests returns the last requests of the node at an address, NodeInfo.RPC, that took long. It requires
// the right to read the cluster: the result has row keys. Errors: ErrPermission, and those of Client.Status.
func (n Nodes) SlowRequests(ctx context.Context, addr string) (*SlowRequests, error) {
	s := &api.SlowRequests{}
	req := api.NamesRequest{}
	to := destination{node: n.calls.locator.pool.node(addr)}
	return s, n.calls.do(ctx, &call{method: api.MethodSlowRequests, dest: to, safe: true, encode: req.Append, decode: s.Decode})
}

// Clients returns the client processes that reported to the node at an address, NodeInfo.RPC, in the last minutes: those whose Config has
// ReportEvery. It requires the right to read on the cluster.
func (n Nodes) Clients(ctx context.Context, addr string) (*ClientProcesses, error) {
	l := &api.ClientProcesses{}
	req := api.NamesRequest{}
	to := destination{node: n.calls.locator.pool.node(addr)}
	return l, n.calls.do(ctx, &call{method: api.MethodListClients, dest: to, safe: true, encode: req.Append, decode: l.Decode})
}

// LogLines returns the last lines of the log of the node at an address, NodeInfo.RPC, of a level or above: info, warn or error. It requires the
// right to read the cluster: lines may have row keys. Errors: ErrPermission, and those of Client.Status.
func (n Nodes) LogLines(ctx context.Context, addr, level string) (*LogLines, error) {
	l := &api.LogLines{}
	req := api.NamesRequest{Names: []string{level}}
	to := destination{node: n.calls.locator.pool.node(addr)}
	return l, n.calls.do(ctx, &call{method: api.MethodLogLines, dest: to, safe: true, encode: req.Append, decode: l.Decode})
}

// Traces returns the requests of the node at an address, NodeInfo.RPC, whose traces are kept: those of one trace, or of all if id is empty. It
// requires the right to read the cluster: the result has row keys. Errors: ErrPermission, and those of Client.Status.
func (n Nodes) Traces(ctx context.Context, addr, id string) (*Traces, error) {
	s := &api.Traces{}
	req := api.NamesRequest{Names: []string{id}}
	to := destination{node: n.calls.locator.pool.node(addr)}
	return s, n.calls.do(ctx, &call{method: api.MethodTraces, dest: to, safe: true, encode: req.Append, decode: s.Decode})
}

// AuditLog returns the last lines of an audit log of the node at an address, NodeInfo.RPC: audit, table-admins
// or refusals. It requires the right to administer the cluster. Errors: ErrPermission, and those of Client.Status.
func (n Nodes) AuditLog(ctx context.Context, addr, log string) (*AuditLines, error) {
	a := &api.AuditLines{}
	req := api.NamesRequest{Names: []string{log}}
	to := destination{node: n.calls.locator.pool.node(addr)}
	return a, n.calls.do(ctx, &call{method: api.MethodAuditLog, dest: to, safe: true, encode: req.Append, decode: a.Decode})
}

// Drain drains a node, given by its id or name, so that it may be stopped. It does not wait for the
// end of the drain; see List and BlockStore.Status. Errors: ErrNodeNotFound, *AmbiguousError, and
// those of List.
func (n Nodes) Drain(ctx context.Context, node string) error {
	return n.drain(ctx, api.NamesRequest{Names: []string{node}})
}

// Undrain ends a drain. Errors: those of Drain.
func (n Nodes) Undrain(ctx context.Context, node string) error {
	return n.drain(ctx, api.NamesRequest{Names: []string{node}, Undrain: true})
}

// drain may be retried: it is idempotent.
func (n Nodes) drain(ctx context.Context, req api.NamesRequest) error {
	return n.calls.do(ctx, &call{method: api.MethodDrainNode, change: true, safe: true, encode: req.Append})
}

// Remove removes a dead node, given by its id or name, from the cluster for good; with force also
// one that is alive. Errors: ErrNodeNotFound, *NodeInUseError, *AmbiguousError, and those of List.
func (n Nodes) Remove(ctx context.Context, node string, force bool) error {
	req := api.NamesRequest{Names: []string{node}, Force: force}
	return n.calls.do(ctx, &call{method: api.MethodRemoveNode, change: true, encode: req.Append})
}

// RaftStatus returns the state of the lock service. Errors: those of List.
func (n Nodes) RaftStatus(ctx context.Context) (*RaftStatus, error) {
	s := &api.RaftStatus{}
	return s, n.calls.query(ctx, api.MethodRaftStatus, nil, s.Decode)
}
