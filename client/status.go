package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// Types of what a node returns about itself and about the client.
type (
	// ServerInfo is the version and identity of a node.
	ServerInfo = api.Pong
	// Status holds the counters and gauges of a node.
	Status = api.Status
	// DiskStatus is one data directory of a node.
	DiskStatus = api.DiskStatus
	// Whoami is a client's identity and rights.
	Whoami = api.Whoami
)

// Ping returns the version and identity of a node. Errors: those of a node that cannot be reached;
// ctx's.
func (c *Client) Ping(ctx context.Context) (ServerInfo, error) {
	var p api.Pong
	err := c.calls.query(ctx, api.MethodPing, nil, p.Decode)
	return p, err
}

// Status returns the counters and gauges of a node. A node that is starting answers with Ready
// false. Errors: those of a node that cannot be reached; ctx's.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	s := &api.Status{}
	return s, c.calls.query(ctx, api.MethodStatus, nil, s.Decode)
}

// Whoami returns the client's identity and rights. Errors: *IdentityError if the client is not
// authenticated, and those of Tables.List.
func (c *Client) Whoami(ctx context.Context) (*Whoami, error) {
	me := &Whoami{}
	return me, c.calls.query(ctx, api.MethodWhoami, nil, me.Decode)
}

// ClusterSpec is another cluster for the registry.
type ClusterSpec = api.AddClusterRequest

// ClusterInfo is a cluster of the registry with its state.
type ClusterInfo = api.ClusterInfo

// Clusters is the registry of other clusters, whose health operators see beside that of this one. List requires the right to monitor the cluster, the
// other methods that to administer it.
type Clusters struct{ calls *caller }

// Clusters returns the registry of other clusters.
func (c *Client) Clusters() Clusters { return Clusters{&c.calls} }

// Add adds a cluster. Errors: a bad request if there is a cluster with that name, the cluster does not answer, or the addresses are those of this one;
// ErrBadName, *table.LimitError, *AmbiguousError, ErrPermission, and those of List.
func (r Clusters) Add(ctx context.Context, spec *ClusterSpec) error {
	return r.calls.do(ctx, &call{method: api.MethodAddCluster, change: true, encode: spec.Append})
}

// List returns all clusters by name, with what they answered in the last seconds. Errors: ErrPermission; those of a node that cannot be reached; ctx's.
func (r Clusters) List(ctx context.Context) ([]ClusterInfo, error) {
	var all api.Clusters
	err := r.calls.query(ctx, api.MethodListClusters, nil, all.Decode)
	return all.Clusters, err
}

// Remove removes a cluster and its credential. Errors: api.ErrNoCluster, ErrPermission, *AmbiguousError, and those of List.
func (r Clusters) Remove(ctx context.Context, name string) error {
	req := api.NamesRequest{Names: []string{name}}
	return r.calls.do(ctx, &call{method: api.MethodRemoveCluster, change: true, encode: req.Append})
}
