package node

import (
	"net"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/bigtable"
	"github.com/steledb/stele/node/bigtableport"
)

// gatewayMemoryShare is the share of the node's memory, as a divisor, for calls of Cloud Bigtable's API: as much as for those of the node's
// own protocol.
const gatewayMemoryShare = 10

// openBigtable opens the port of Cloud Bigtable's API, unless a node has none, once the node can serve data. Its clients are not the
// node's own, whose retries METADATA needs.
func openBigtable(n *Node) (*bigtableport.Port, error) {
	if n.cfg.Bigtable == "off" {
		return nil, nil // a nil Port has no address
	}
	log := n.log.With("part", "bigtable")
	return bigtableport.Open(bigtableport.Config{
		Log: log, Listen: func() (net.Listener, error) { return n.cfg.Network.Listen(n.cfg.Bigtable) },
		Guard: func(l net.Listener, strangersMax int) net.Listener {
			return n.security.GuardHTTP2(l, strangersMax, n.refuseConn)
		},
		MemoryBytes: n.cfg.budget().Gateway, Authz: n.authz, Tokens: n.tokenAuth, NodeAddr: n.RPCAddr(),
		Client:   client.Config{Dial: connector{n}.toAny, Logger: log, SilenceMax: peerSilenceMax, DialTimeout: peerDialTimeout},
		Failed:   n.life.fail,
		Sessions: n.cfg.BigtableSessions, StrictLimits: n.cfg.BigtableStrictLimits,
		Peer: bigtable.Peer{Node: n.ID(), Zone: n.cfg.Zone}, AppProfiles: n.appProfiles.Read,
	})
}

// BigtableAddr returns the address of Cloud Bigtable's API, or "" if there is none.
func (n *Node) BigtableAddr() string { return n.bigtable.Addr() }
