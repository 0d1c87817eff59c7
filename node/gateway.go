package node

import (
	"context"
	"fmt"
	"net"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/bigtable"
	"github.com/steledb/stele/gateway/bigtableadmin"
	"github.com/steledb/stele/gateway/server"
)

// gatewayMemoryShare is the share of the node's memory, as a divisor, for calls of Cloud Bigtable's API: as much as for those of the node's
// own protocol.
const gatewayMemoryShare = 10

// bigtablePort is the port of Cloud Bigtable's API. The zero value has none.
type bigtablePort struct {
	server *server.Server
	client *client.Client
	addr   net.Addr
}

// open opens the port, unless the node has none, once the node can serve data. All calls use one client with the rights of a node: only an
// open node, where all callers may do everything, has the port. The client is not the node's own, whose retries METADATA needs.
func (p *bigtablePort) open(ctx context.Context, n *Node) (err error) {
	if n.cfg.Bigtable == "off" {
		return nil
	}
	cfg := client.Config{Dial: connector{n}.toAny, Logger: n.log.With("part", "bigtable"), SilenceMax: peerSilenceMax, DialTimeout: peerDialTimeout}
	if p.client, err = client.Open(ctx, n.RPCAddr(), cfg); err != nil {
		return fmt.Errorf("connect to this node itself: %w", err)
	}
	l, err := n.cfg.Network.Listen(n.cfg.Bigtable)
	if err != nil {
		return fmt.Errorf("listen for clients of Cloud Bigtable: %w", err)
	}
	p.addr = l.Addr()
	p.server = server.New(server.Config{
		Logger: n.log.With("part", "bigtable"), MemoryBytes: n.cfg.budget().Gateway,
		Data: bigtable.Config{Open: func(_ context.Context, name string) (bigtable.Table, error) { return p.client.Table(name), nil },
			Peer: bigtable.Peer{Node: n.ID(), Zone: n.cfg.Zone}},
		Admin: bigtableadmin.Config{Open: func(context.Context) (bigtableadmin.Tables, bigtableadmin.Nodes, error) {
			return p.client.Tables(), p.client.Nodes(), nil
		}},
	})
	n.background.Go(func() {
		if err := p.server.Serve(l); err != nil {
			n.life.fail(fmt.Errorf("serve clients of Cloud Bigtable: %w", err))
		}
	})
	return nil
}

// shutdown ends the calls at the port. Those that have not ended when ctx does are cancelled.
func (p *bigtablePort) shutdown(ctx context.Context) {
	if p.server != nil {
		p.server.Shutdown(ctx)
	}
	if p.client != nil {
		_ = p.client.Close() // its error is always nil
	}
}

// BigtableAddr returns the address of Cloud Bigtable's API, or "" if there is none.
func (n *Node) BigtableAddr() string {
	if n.bigtable.addr == nil {
		return ""
	}
	return n.bigtable.addr.String()
}
