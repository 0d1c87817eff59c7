package bigcluster

import (
	"log"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/test/simulation/simnet"
)

// gossipCount counts what a host sends by gossip.
type gossipCount struct{ packets, packetBytes, streams, streamBytes int64 }

// network implements node.Network, and counts gossip.
type network struct {
	*simnet.Host
	count *gossipCount
}

// Gossip implements node.Network.
func (n network) Gossip(address string, _ *log.Logger) (gossip.Sockets, error) {
	g, err := n.Host.Gossip(address)
	if err != nil {
		return nil, err
	}
	return sockets{g, n.count}, nil
}

// sockets implements gossip.Sockets.
type sockets struct {
	*simnet.Gossip
	count *gossipCount
}

// Port implements gossip.Sockets.
func (s sockets) Port() int { return s.GetAutoBindPort() }

// WriteTo implements memberlist.Transport.
func (s sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	s.count.packets++
	s.count.packetBytes += int64(len(b))
	return s.Gossip.WriteTo(b, addr)
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (s sockets) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return s.WriteTo(b, a.Addr)
}

// DialTimeout implements memberlist.Transport.
func (s sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := s.Gossip.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	s.count.streams++
	return counted{conn, s.count}, nil
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (s sockets) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return s.DialTimeout(a.Addr, timeout)
}

// counted is a stream whose bytes are counted.
type counted struct {
	net.Conn
	count *gossipCount
}

// Write implements net.Conn.
func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.count.streamBytes += int64(n)
	return n, err
}
