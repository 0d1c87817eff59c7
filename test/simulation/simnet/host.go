package simnet

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Host is a machine: its kernel, with the sockets of its process. Its methods implement the network
// of a node.
type Host struct {
	net    *Network
	ip     netip.Addr
	number uint16

	// These belong to Network.mu.
	up        bool // the machine has power
	paths     []*path
	conns     map[uint64]*Conn // by Conn.key
	listeners []*Listener
	gossips   []*Gossip
	ports     map[uint16]int // ports of dialed connections, with their number
	nextPort  uint16
}

// The ports for dialed connections, and for listeners of port 0.
const (
	firstPort = 32768
	lastPort  = 60999
)

// IP returns the address of the host.
func (h *Host) IP() string { return h.ip.String() }

// Number returns the number of the host in events. Hosts are numbered from 0, as they are created.
func (h *Host) Number() uint16 {
	if h == nil {
		return noHost
	}
	return h.number
}

// resolve returns the address of a text. The host has no name server: it knows IP addresses and
// localhost. An empty host is the host itself.
func (h *Host) resolve(address string) (netip.AddrPort, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return netip.AddrPort{}, &net.AddrError{Err: "invalid port", Addr: text}
	}
	ip := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if host != "" && host != "localhost" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	}
	ip = ip.Unmap()
	if ip.IsUnspecified() {
		ip = h.ip
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

// bindAddress returns the address to bind. Its IP is unspecified for all addresses of the host.
func (h *Host) bindAddress(address string) (netip.AddrPort, error) {
	at, err := h.resolve(address)
	if err != nil {
		return at, err
	}
	host, _, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), nil
	}
	if at.Addr() != h.ip && !at.Addr().IsLoopback() {
		return at, os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)
	}
	return at, nil
}

// targetLocked returns the host with that address, or nil.
func (h *Host) targetLocked(ip netip.Addr) *Host {
	if ip.IsLoopback() {
		return h
	}
	return h.net.byIP[ip]
}

// receives reports whether a socket bound to one address gets what is sent to another.
func receives(bound, to netip.AddrPort) bool {
	return bound.Port() == to.Port() && (bound.Addr().IsUnspecified() || bound.Addr() == to.Addr())
}

// listenerLocked returns the listener for an address, or nil.
func (h *Host) listenerLocked(to netip.AddrPort) *Listener {
	for _, l := range h.listeners {
		if receives(l.bound, to) {
			return l
		}
	}
	return nil
}

func (h *Host) gossipLocked(to netip.AddrPort) *Gossip {
	for _, g := range h.gossips {
		if receives(g.bound, to) {
			return g
		}
	}
	return nil
}

// freePortLocked returns a port that no socket of the host has.
func (h *Host) freePortLocked() (uint16, error) {
	for range lastPort - firstPort + 1 {
		if h.nextPort < firstPort || h.nextPort > lastPort {
			h.nextPort = firstPort
		}
		port := h.nextPort
		h.nextPort++
		used := slices.ContainsFunc(h.listeners, func(l *Listener) bool { return l.bound.Port() == port })
		if h.ports[port] == 0 && !used {
			return port, nil
		}
	}
	return 0, os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)
}

func (h *Host) removeLocked(c *Conn) {
	delete(h.conns, c.key)
	if c.dialed == nil {
		return
	}
	port := uint16(c.local.Port)
	if h.ports[port]--; h.ports[port] == 0 {
		delete(h.ports, port)
	}
}

// Kill ends the process of the host: its sockets vanish, and what it holds of them fails. With power
// the machine stops too, until Up, and peers get nothing. Otherwise the kernel of the machine closes
// the connections: by chance with a reset, or with the end of the stream after the bytes that the
// process had written. Connections with bytes not read are always reset.
func (h *Host) Kill(power bool) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	size := 0
	if power {
		h.up, size = false, 1
	}
	n.emitLocked(HostKilled, h, h, 0, size, 0)
	for len(h.listeners) > 0 {
		h.listeners[0].closeLocked()
	}
	for len(h.gossips) > 0 {
		h.gossips[0].closeLocked()
	}
	keys := slices.SortedFunc(maps.Keys(h.conns), cmp.Compare)
	for _, key := range keys {
		c := h.conns[key]
		switch {
		case c == nil: // it ended with another
		case power:
			c.closed = true
			c.failLocked(net.ErrClosed)
		case !c.closed:
			c.closeLocked(n.cfg.Rand.IntN(2) == 0)
		}
	}
}

// Reset resets all connections of the host at once, as a firewall that forgets them: bytes on the wire are lost, and processes go on.
func (h *Host) Reset() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(h.conns), cmp.Compare)
	for _, key := range keys {
		c := h.conns[key]
		if c == nil || c.closed || c.gone || c.state != established {
			continue
		}
		if p := c.out.dst; p != nil {
			n.resetLocked(p, c.out.path, c.host, 0, syscall.ECONNRESET)
		}
		c.failLocked(syscall.ECONNRESET)
	}
}

// Up restores the power of the machine. Peers that send to its old connections get a reset.
func (h *Host) Up() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if !h.up {
		h.up = true
		n.emitLocked(HostUp, h, h, 0, 0, 0)
	}
}
