package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Nodes returns the nodes of the cluster, sorted by id, from the view of the node that answers.
// Errors: those of a node that cannot be reached or has not joined a cluster yet; ctx's.
func (c *Client) Nodes(ctx context.Context) (nodes []NodeInfo, err error) {
	err = c.query(ctx, api.MethodListNodes, nil, func(d *wire.Decoder) (err error) {
		nodes, err = api.DecodeNodes(d)
		return err
	})
	return nodes, err
}

// DrainNode drains a node, given by its id or name, so that it may be stopped. It does not wait for
// the end of the drain; see Nodes and StoreStatus. Errors: ErrNodeNotFound, *AmbiguousError, and
// those of Nodes.
func (c *Client) DrainNode(ctx context.Context, node string) error {
	return c.drain(ctx, api.NamesRequest{Names: []string{node}})
}

// UndrainNode ends a drain. Errors: those of DrainNode.
func (c *Client) UndrainNode(ctx context.Context, node string) error {
	return c.drain(ctx, api.NamesRequest{Names: []string{node}, Undrain: true})
}

// drain may be retried: it is idempotent.
func (c *Client) drain(ctx context.Context, req api.NamesRequest) error {
	return c.do(ctx, &call{method: api.MethodDrainNode, change: true, safe: true, encode: req.Append})
}

// RemoveNode removes a dead node, given by its id or name, from the cluster for good; with force
// also one that is alive. Errors: ErrNodeNotFound, *NodeInUseError, *AmbiguousError, and those of
// Nodes.
func (c *Client) RemoveNode(ctx context.Context, node string, force bool) error {
	req := api.NamesRequest{Names: []string{node}, Force: force}
	return c.do(ctx, &call{method: api.MethodRemoveNode, change: true, encode: req.Append})
}

// UnservedTablets returns the tablets that no server has served for some seconds, as far as the
// master knows. Errors: those of Nodes; ErrUnavailable while no master is known.
func (c *Client) UnservedTablets(ctx context.Context) (*UnservedTablets, error) {
	u := &api.UnservedTablets{}
	return u, c.query(ctx, api.MethodUnservedTablets, nil, u.Decode)
}

// RaftStatus returns the state of the lock service. Errors: those of Nodes.
func (c *Client) RaftStatus(ctx context.Context) (*RaftStatus, error) {
	s := &api.RaftStatus{}
	return s, c.query(ctx, api.MethodRaftStatus, nil, s.Decode)
}
