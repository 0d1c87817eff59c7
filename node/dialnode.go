package node

import (
	"context"
	"fmt"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// methodIdentity returns a node's cluster and id. The node at an address may have been replaced by another one.
const methodIdentity = "cluster.who"

func (n *Node) handleIdentity() {
	n.rpc.Handle(methodIdentity, rpc.Inline, func(c *rpc.Call) {
		c.Reply(func(e *wire.Encoder) {
			e.Array(2)
			e.Str(n.cluster())
			e.Str(n.id())
		})
	})
}

// dialNode connects to a node, and verifies that it is that node.
func (n *Node) dialNode(ctx context.Context, id string) (*rpc.Conn, error) {
	addr, known := n.members.AddressOf(id)
	if !known {
		return nil, fmt.Errorf("address of node %s is unknown", id)
	}
	conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: n.security.Dialer(id)})
	if err != nil {
		return nil, fmt.Errorf("connect to node %s at %s: %w", id, addr, err)
	}
	var cluster, caller string
	err = conn.Call(ctx, methodIdentity, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
		d.Array()
		cluster, caller = d.Str(), d.Str()
		return d.Err()
	})
	switch {
	case err != nil:
		err = fmt.Errorf("identify the node at %s: %w", addr, err)
	case cluster != n.cluster() || caller != id:
		err = fmt.Errorf("node at %s is %s of cluster %q, want %s", addr, caller, cluster, id)
	default:
		return conn, nil
	}
	_ = conn.Close()
	return nil, err
}
