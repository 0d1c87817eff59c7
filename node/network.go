package node

import (
	"context"
	"log"
	"net"

	"github.com/steledb/stele/node/gossip"
)

// Network is the network of a node: all its ports but HTTP, and all connections that it opens. The remote addresses of its connections
// are *net.TCPAddr: limits count hosts by their addresses. Names in addresses of gossip and of Config.Join are resolved by the machine.
type Network interface {
	// Listen listens for connections at a host:port. Port 0 means any free port.
	Listen(address string) (net.Listener, error)
	// Dial connects to a host:port.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Gossip opens the sockets of gossip at a host:port. The logger is for what is no error of a call.
	Gossip(address string, logger *log.Logger) (gossip.Sockets, error)
}

// MachineNetwork returns the network of the operating system: TCP, and UDP for gossip.
func MachineNetwork() Network { return machineNetwork{} }

type machineNetwork struct{}

// Listen implements Network.
func (machineNetwork) Listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

// Dial implements Network.
func (machineNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Gossip implements Network.
func (machineNetwork) Gossip(address string, logger *log.Logger) (gossip.Sockets, error) {
	return gossip.Open(address, logger)
}

// connector connects a node to other nodes, and to itself: with TLS, unless it is open.
type connector struct{ n *Node }

// toNode connects to a node, or to any node of the cluster if id is empty.
func (c connector) toNode(ctx context.Context, id, addr string) (net.Conn, error) {
	if c.n.security == nil {
		return c.n.cfg.Network.Dial(ctx, addr)
	}
	return c.n.security.DialNode(ctx, id, addr)
}

// toAny connects to any node of the cluster.
func (c connector) toAny(ctx context.Context, addr string) (net.Conn, error) {
	return c.toNode(ctx, "", addr)
}
