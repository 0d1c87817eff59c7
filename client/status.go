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
