package simnet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/memberlist"
)

// packetMax is the largest payload of a packet.
const packetMax = 65507

// packet is a packet in flight.
type packet struct {
	from   *Host
	to     netip.AddrPort
	source *net.UDPAddr
	data   []byte
	path   *path
}

// Gossip is a transport of memberlist, with a UDP socket and a listener of the same port.
type Gossip struct {
	host     *Host
	bound    netip.AddrPort
	listener *Listener
	queue    chan packet // from the kernel; bounded by Config.PacketQueue
	packets  chan *memberlist.Packet
	streams  chan net.Conn
	stopping chan struct{}
	tasks    sync.WaitGroup

	closed bool // belongs to Network.mu
}

var _ memberlist.NodeAwareTransport = (*Gossip)(nil)

// Gossip binds a UDP and a TCP port. The address is as for Listen. The caller must call Shutdown,
// unless its process is killed.
func (h *Host) Gossip(address string) (*Gossip, error) {
	at, err := h.bindAddress(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "udp", Err: err}
	}
	g, err := h.bindGossip(at)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "udp", Err: err}
	}
	g.tasks.Go(g.receive)
	g.tasks.Go(g.accept)
	return g, nil
}

func (h *Host) bindGossip(at netip.AddrPort) (*Gossip, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	l, err := h.listenLocked(at)
	if err != nil {
		return nil, err
	}
	g := &Gossip{
		host: h, bound: l.bound, listener: l, queue: make(chan packet, h.net.cfg.PacketQueue),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), stopping: make(chan struct{}),
	}
	if h.gossipLocked(l.bound) != nil {
		l.closeLocked()
		return nil, os.NewSyscallError("bind", syscall.EADDRINUSE)
	}
	h.gossips = append(h.gossips, g)
	return g, nil
}

// receive passes packets on, with the time of the process's clock.
func (g *Gossip) receive() {
	for {
		select {
		case p := <-g.queue:
			select {
			case g.packets <- &memberlist.Packet{Buf: p.data, From: p.source, Timestamp: time.Now()}:
			case <-g.stopping:
				return
			}
		case <-g.stopping:
			return
		}
	}
}

func (g *Gossip) accept() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		select {
		case g.streams <- c:
		case <-g.stopping:
			_ = c.Close()
			return
		}
	}
}

// GetAutoBindPort returns the port.
func (g *Gossip) GetAutoBindPort() int { return int(g.bound.Port()) }

// FinalAdvertiseAddr implements memberlist.Transport. Without an address it is that of the host.
func (g *Gossip) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		return g.source().IP, g.GetAutoBindPort(), nil
	}
	addr := net.ParseIP(ip)
	if addr == nil {
		return nil, 0, fmt.Errorf("parse advertise address %q", ip)
	}
	if v4 := addr.To4(); v4 != nil {
		addr = v4
	}
	return addr, port, nil
}

// source returns the address of the sender of packets.
func (g *Gossip) source() *net.UDPAddr {
	ip := g.bound.Addr()
	if ip.IsUnspecified() {
		ip = g.host.ip
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, g.bound.Port()))
}

// PacketCh implements memberlist.Transport.
func (g *Gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }

// StreamCh implements memberlist.Transport.
func (g *Gossip) StreamCh() <-chan net.Conn { return g.streams }

// DialTimeout implements memberlist.Transport.
func (g *Gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return g.host.Dial(ctx, addr)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (g *Gossip) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return g.DialTimeout(a.Addr, timeout)
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (g *Gossip) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return g.WriteTo(b, a.Addr)
}

// WriteTo implements memberlist.Transport. It reports no loss.
func (g *Gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := g.host.resolve(addr)
	if err == nil {
		err = g.send(b, to)
	}
	if err != nil {
		return time.Time{}, &net.OpError{Op: "write", Net: "udp", Source: g.source(), Err: err}
	}
	return time.Now(), nil
}

func (g *Gossip) send(b []byte, to netip.AddrPort) error {
	if len(b) > packetMax {
		return os.NewSyscallError("sendto", syscall.EMSGSIZE)
	}
	n := g.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if g.closed {
		return net.ErrClosed
	}
	peer := g.host.targetLocked(to.Addr())
	n.emitLocked(PacketSent, g.host, peer, 0, len(b), xxhash.Sum64(b))
	if peer == nil {
		return nil
	}
	p := &packet{from: g.host, to: to, source: g.source(), data: bytes.Clone(b), path: g.host.pathLocked(peer)}
	if p.path.chanceLocked(p.path.link.Loss) {
		n.emitLocked(PacketDropped, g.host, peer, 0, len(b), 0)
		return nil
	}
	n.flyLocked(p)
	if p.path.chanceLocked(p.path.link.Duplicate) {
		n.emitLocked(PacketDuplicated, g.host, peer, 0, len(b), 0)
		again := *p
		again.data = bytes.Clone(b)
		n.flyLocked(&again)
	}
	return nil
}

// flyLocked schedules the arrival of a packet.
func (n *Network) flyLocked(p *packet) {
	now := n.cfg.Now()
	at := now + p.path.delayLocked(len(p.data), now)
	if p.path.chanceLocked(p.path.link.Reorder) {
		most := p.path.link.ReorderDelay
		setDefault(&most, 20*time.Millisecond)
		at += time.Duration(n.cfg.Rand.Int64N(int64(most)))
	}
	n.scheduleLocked(event{at: at, kind: packetDue, packet: p})
}

// packetLocked delivers a packet.
func (n *Network) packetLocked(p *packet) {
	peer := p.from.targetLocked(p.to.Addr())
	g := peer.gossipLocked(p.to)
	if g != nil && peer.up && !p.path.cut {
		select {
		case g.queue <- *p:
			n.emitLocked(PacketDelivered, p.from, peer, 0, len(p.data), 0)
			return
		default:
		}
	}
	n.emitLocked(PacketDropped, p.from, peer, 0, len(p.data), 0)
}

// Shutdown implements memberlist.Transport. It ends the goroutines. It may be called again.
func (g *Gossip) Shutdown() error {
	n := g.host.net
	n.mu.Lock()
	if !g.closed {
		g.closeLocked()
	}
	n.mu.Unlock()
	g.tasks.Wait()
	return nil
}

func (g *Gossip) closeLocked() {
	g.closed = true
	close(g.stopping)
	g.host.gossips = slices.DeleteFunc(g.host.gossips, func(o *Gossip) bool { return o == g })
	if !g.listener.closed {
		g.listener.closeLocked()
	}
}
