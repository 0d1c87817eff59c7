package gossip

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Sockets are the sockets of one node's gossip: one for packets and a listener for streams, with one address. The addresses of remote
// ends are a *net.UDPAddr and a *net.TCPAddr. Their channels are received from until Shutdown has returned.
type Sockets interface {
	memberlist.NodeAwareTransport
	// Port returns the port of both.
	Port() int
}

// transport wraps a node's sockets, and bounds what they accept of unauthenticated senders.
// Memberlist itself buffers 20 MiB for each of any number of streams, and retains 64 KiB for each
// packet.
type transport struct {
	Sockets
	decrypter *decrypter
	budget    *streamBudget
	members   func() map[netip.Prefix]bool // returns the hosts of known members
	log       func(logLine)

	streams chan net.Conn
	packets chan *memberlist.Packet
	refused atomic.Int64 // rejected streams
	dropped atomic.Int64 // dropped packets

	stopping chan struct{} // closed when memberlist may no longer receive
	stopped  chan struct{} // closed when the sockets are
	stop     sync.Once
	tasks    sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(inner Sockets, o *decrypter, memory int64, members func() map[netip.Prefix]bool, log func(logLine)) *transport {
	t := &transport{
		Sockets: inner, decrypter: o, budget: newStreamBudget(memory), members: members, log: log,
		streams: make(chan net.Conn), packets: make(chan *memberlist.Packet),
		stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
	t.tasks.Go(t.acceptStreams)
	t.tasks.Go(t.acceptPackets)
	return t
}

// StreamCh returns the accepted streams.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// PacketCh returns the accepted packets.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// DialTimeout opens a stream.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream. Its answer is bounded like an inbound stream: the peer is not
// authenticated yet.
func (t *transport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := t.Sockets.DialAddressTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return newStream(conn, t.budget.outbound(), t.decrypter, &t.refused), nil
}

// Shutdown closes the sockets and ends the goroutines. Packets and streams that arrive meanwhile
// are dropped, since memberlist may no longer receive.
func (t *transport) Shutdown() error {
	var err error
	t.stop.Do(func() {
		close(t.stopping)
		err = t.Sockets.Shutdown()
		close(t.stopped)
		t.tasks.Wait()
	})
	return err
}

// membersEvery is how long the set of members' hosts is cached.
const membersEvery = time.Second

func (t *transport) acceptStreams() {
	var members map[netip.Prefix]bool
	var fetched time.Time
	for {
		select {
		case conn := <-t.Sockets.StreamCh():
			if now := time.Now(); now.Sub(fetched) > membersEvery {
				members, fetched = t.members(), now
			}
			host := hostOf(conn.RemoteAddr())
			p, err := t.budget.admit(host, members[host])
			if err != nil {
				t.reject(conn, err)
				continue
			}
			s := newStream(conn, p, t.decrypter, &t.refused)
			select {
			case t.streams <- s:
			case <-t.stopping:
				_ = s.Close()
			}
		case <-t.stopped:
			return
		}
	}
}

// reject closes a stream at once, with a reset, so that the kernel keeps no state of it.
func (t *transport) reject(conn net.Conn, why error) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
	t.refused.Add(1)
	t.log(logLine{levelUntrusted, "gossip stream rejected", []any{"from", conn.RemoteAddr(), "reason", why}})
}

func (t *transport) acceptPackets() {
	gate := packetGate{decrypter: t.decrypter}
	for {
		select {
		case p := <-t.Sockets.PacketCh():
			if err := gate.check(p.Buf, p.Timestamp); err != nil {
				t.dropped.Add(1)
				t.log(logLine{levelUntrusted, "gossip packet dropped", []any{"from", p.From, "reason", err}})
				continue
			}
			p.Buf = bytes.Clone(p.Buf) // the buffer that memberlist would retain has 64 KiB
			select {
			case t.packets <- p:
			case <-t.stopping:
			}
		case <-t.stopped:
			return
		}
	}
}

// hostOf returns what counts as one host: an IPv4 address, or the /64 of an IPv6 address, since one
// host may use all of it.
func hostOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return hostPrefix(tcp.AddrPort().Addr())
}

func hostPrefix(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// Stats counts rejections since the start.
type Stats struct {
	RefusedStreams int64 // when opened, or later
	DroppedPackets int64
}

// Stats returns the number of rejected streams and packets.
func (r *Ring) Stats() Stats {
	return Stats{RefusedStreams: r.transport.refused.Load(), DroppedPackets: r.transport.dropped.Load()}
}
