// Package dialer connects to other nodes by their ids, and identifies this one to them: the node at an address may have been replaced by
// another one. It starts no goroutine.
package dialer

import (
	"context"
	"fmt"
	"net"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/rpc"
)

// Method returns a node's cluster and id.
const Method = "cluster.who"

// Config is what the dialer needs.
type Config struct {
	ID        func() string // of this node
	Cluster   func() string
	AddressOf func(node string) (addr string, known bool)
	// Connect connects to a node at an address.
	Connect func(ctx context.Context, node, addr string) (net.Conn, error)
}

// Dialer connects to other nodes.
type Dialer struct{ Config }

// New creates a dialer.
func New(cfg Config) *Dialer { return &Dialer{cfg} }

// Register registers Method.
func (d *Dialer) Register(r method.Registrar) {
	r.Handle(Method, rpc.Inline, authz.Guard{}, func(c *rpc.Call) {
		c.Reply(func(e *wire.Encoder) {
			e.Array(2)
			e.Str(d.Cluster())
			e.Str(d.ID())
		})
	})
}

// Dial connects to a node, and verifies that it is that node.
func (d *Dialer) Dial(ctx context.Context, id string) (*rpc.Conn, error) {
	addr, known := d.AddressOf(id)
	if !known {
		return nil, fmt.Errorf("address of node %s is unknown", id)
	}
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
		return d.Connect(ctx, id, addr)
	}})
	if err != nil {
		return nil, fmt.Errorf("connect to node %s at %s: %w", id, addr, err)
	}
	var cluster, caller string
	err = conn.Call(ctx, Method, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
		d.Array()
		cluster, caller = d.Str(), d.Str()
		return d.Err()
	})
	switch {
	case err != nil:
		err = fmt.Errorf("identify the node at %s: %w", addr, err)
	case cluster != d.Cluster() || caller != id:
		err = fmt.Errorf("node at %s is %s of cluster %q, want %s", addr, caller, cluster, id)
	default:
		return conn, nil
	}
	_ = conn.Close()
	return nil, err
}

// Peers calls methods of nodes over persistent connections.
type Peers interface {
	Call(ctx context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error
}

// CallSelf sends a request to the node's own port over a persistent connection: new connections are refused when all are in use, although the
// node is alive.
func (d *Dialer) CallSelf(ctx context.Context, peers Peers) error {
	err := peers.Call(ctx, d.ID(), Method, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
		d.Skip()
		return d.Err()
	})
	if err != nil {
		return fmt.Errorf("the node does not answer at its own port: %w", err)
	}
	return nil
}
