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

// transport is memberlist's sockets, with bounds on what they bring before anybody knows who sends it. Memberlist
// itself buffers 20 MiB for each of any number of streams, and keeps 64 KiB for each packet.
type transport struct {
	*memberlist.NetTransport
	opener  *opener
	room    *room
	members func() map[netip.Prefix]bool // hosts of known members
	say     func(line)

	streams chan net.Conn
	packets chan *memberlist.Packet
	refused atomic.Int64 // streams
	dropped atomic.Int64 // packets

	stopping chan struct{} // memberlist may take nothing any more
	stopped  chan struct{} // the sockets are closed
	stop     sync.Once
	tasks    sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(inner *memberlist.NetTransport, o *opener, memory int64, members func() map[netip.Prefix]bool, say func(line)) *transport {
	t := &transport{
		NetTransport: inner, opener: o, room: newRoom(memory), members: members, say: say,
		streams: make(chan net.Conn), packets: make(chan *memberlist.Packet),
		stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
	t.tasks.Go(t.takeStreams)
	t.tasks.Go(t.takePackets)
	return t
}

// StreamCh returns the streams that are let in.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// PacketCh returns the packets that are let in.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// DialTimeout opens a stream.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream. Its answer is bounded as what comes in is: who is there, nobody knows yet.
func (t *transport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := t.NetTransport.DialAddressTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return newStream(conn, t.room.outward(), t.opener, &t.refused), nil
}

// Shutdown closes the sockets and ends the goroutines. What comes meanwhile is dropped, since memberlist need not be there.
func (t *transport) Shutdown() error {
	var err error
	t.stop.Do(func() {
		close(t.stopping)
		err = t.NetTransport.Shutdown()
		close(t.stopped)
		t.tasks.Wait()
	})
	return err
}

// membersEvery is how long hosts of members are remembered.
const membersEvery = time.Second

func (t *transport) takeStreams() {
	var members map[netip.Prefix]bool
	var asked time.Time
	for {
		select {
		case conn := <-t.NetTransport.StreamCh():
			if now := time.Now(); now.Sub(asked) > membersEvery {
				members, asked = t.members(), now
			}
			host := hostOf(conn.RemoteAddr())
			p, err := t.room.enter(host, members[host])
			if err != nil {
				t.refuse(conn, err)
				continue
			}
			s := newStream(conn, p, t.opener, &t.refused)
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

// refuse ends a stream at once; the kernel need not remember it.
func (t *transport) refuse(conn net.Conn, why error) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
	t.refused.Add(1)
	t.say(line{levelStranger, "a stream of gossip is refused", []any{"from", conn.RemoteAddr(), "reason", why}})
}

func (t *transport) takePackets() {
	gate := packetGate{opener: t.opener}
	for {
		select {
		case p := <-t.NetTransport.PacketCh():
			if err := gate.check(p.Buf, p.Timestamp); err != nil {
				t.dropped.Add(1)
				t.say(line{levelStranger, "a packet of gossip is dropped", []any{"from", p.From, "reason", err}})
				continue
			}
			p.Buf = bytes.Clone(p.Buf) // memberlist's queue would keep 64 KiB of it
			select {
			case t.packets <- p:
			case <-t.stopping:
			}
		case <-t.stopped:
			return
		}
	}
}

// hostOf returns what counts as one host: an IPv4 address, or the /64 of an IPv6 address, all of which one host may use.
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

// Stats counts what was not taken since the start.
type Stats struct {
	RefusedStreams int64 // at once, or in their midst
	DroppedPackets int64
}

// Stats tells what gossip has not taken.
func (r *Ring) Stats() Stats {
	return Stats{RefusedStreams: r.transport.refused.Load(), DroppedPackets: r.transport.dropped.Load()}
}
