package simnet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// synRetry is the time to the second attempt to connect, which doubles with each.
	synRetry = time.Second
	// halfOpenTime is how long a listener remembers a connect that was not completed.
	halfOpenTime = 60 * time.Second
)

// Dial opens a connection. It fails with ECONNREFUSED if the host has no listener, and with a
// timeout if the host does not answer within Config.ConnectTimeout or before ctx ends.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	to, err := h.resolve(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	remote := net.TCPAddrFromAddrPort(to)
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: err}
	}
	c, err := h.begin(to)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: err}
	}
	select {
	case <-c.dialed:
	case <-ctx.Done():
	}
	return c.finishDial(ctx, remote)
}

func (c *Conn) finishDial(ctx context.Context, remote net.Addr) (net.Conn, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	err := ctx.Err()
	switch {
	case c.gone:
		err = c.err
		if errno, ok := err.(syscall.Errno); ok {
			err = os.NewSyscallError("connect", errno)
		}
	case err != nil:
		c.closeLocked(true)
	default:
		return c, nil
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Source: c.local, Addr: remote, Err: err}
}

// begin sends the first packet of a new connection.
func (h *Host) begin(to netip.AddrPort) (*Conn, error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if !h.up {
		return nil, os.NewSyscallError("connect", syscall.ENETDOWN)
	}
	port, err := h.freePortLocked()
	if err != nil {
		return nil, err
	}
	from := h.ip
	if to.Addr().IsLoopback() {
		from = to.Addr()
	}
	n.conns++
	c := n.newConnLocked(h, 2*n.conns, net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, port)), net.TCPAddrFromAddrPort(to))
	h.ports[port]++
	c.dialed = make(chan struct{}, 1)
	c.out, c.in = &half{net: n, src: c}, &half{net: n, dst: c}
	c.begun, c.backoff = n.cfg.Now(), synRetry
	peer := h.targetLocked(to.Addr())
	n.emitLocked(Connecting, h, peer, c.id, 0, xxhash.Sum64String(to.String()))
	if peer != nil {
		c.out.path, c.in.path = h.pathLocked(peer), peer.pathLocked(h)
		c.out.back, c.in.back = c.in.path, c.out.path
	}
	c.synLocked(peer, to)
	return c, nil
}

// synLocked sends the first packet, and again until there is an answer. A peer that is nil or down
// does not answer.
func (c *Conn) synLocked(peer *Host, to netip.AddrPort) {
	if peer != nil {
		now := c.net.cfg.Now()
		c.net.afterLocked(c.out.path.delayLocked(0, now), func(time.Duration) { c.synArrivedLocked(peer, to) })
	}
	wait := min(c.backoff, max(0, c.begun+c.net.cfg.ConnectTimeout-c.net.cfg.Now()))
	c.backoff *= 2
	c.net.afterLocked(wait, func(now time.Duration) {
		switch {
		case c.gone || c.state != connecting:
		case now-c.begun >= c.net.cfg.ConnectTimeout:
			c.net.emitLocked(TimedOut, c.host, peer, c.id, 0, 0)
			c.failLocked(syscall.ETIMEDOUT)
		default:
			c.synLocked(peer, to)
		}
	})
}

// synArrivedLocked answers the first packet of a connection at the listener's host.
func (c *Conn) synArrivedLocked(peer *Host, to netip.AddrPort) {
	there, back := c.out.path, c.out.back
	if c.gone || there.cut || !peer.up || there.chanceLocked(there.link.Loss) {
		return
	}
	l := peer.listenerLocked(to)
	if l == nil {
		if !back.cut {
			c.net.resetLocked(c, back, peer, 0, syscall.ECONNREFUSED)
		}
		return
	}
	server := c.out.dst
	if server == nil || server.gone {
		if len(l.accepted)+l.halfOpen >= c.net.cfg.Backlog {
			return // the client tries again
		}
		server = c.serverEndLocked(peer, l)
	}
	if back.cut || back.chanceLocked(back.link.Loss) {
		return
	}
	c.net.afterLocked(back.delayLocked(0, c.net.cfg.Now()), func(time.Duration) { c.synAckArrivedLocked(server) })
}

// serverEndLocked creates the server's end of a connection.
func (c *Conn) serverEndLocked(peer *Host, l *Listener) *Conn {
	s := c.net.newConnLocked(peer, c.key+1, c.remote, c.local)
	s.state, s.listener = synReceived, l
	s.in, s.out = c.out, c.in
	s.in.dst, s.out.src = s, s
	l.halfOpen++
	c.net.afterLocked(halfOpenTime, func(time.Duration) {
		if s.state == synReceived {
			s.failLocked(syscall.ETIMEDOUT)
		}
	})
	return s
}

// synAckArrivedLocked completes the dial. The server learns of it with the first segment.
func (c *Conn) synAckArrivedLocked(server *Conn) {
	switch {
	case c.out.back.cut || !c.host.up || server != c.out.dst:
	case c.gone:
		if !c.out.path.cut {
			c.net.resetLocked(server, c.out.path, c.host, 0, syscall.ECONNRESET)
		}
	case c.state == connecting:
		c.state = established
		c.net.emitLocked(Connected, c.host, server.host, c.id, 0, 0)
		c.out.sendLocked(0, segmentOpen)
		signal(c.dialed)
	}
}

// resetLocked sends a reset to one end of a connection. It is not repeated if it is lost. It does
// not arrive before the given time.
func (n *Network) resetLocked(c *Conn, p *path, from *Host, notBefore time.Duration, err syscall.Errno) {
	now := n.cfg.Now()
	delay := max(p.delayLocked(0, now), notBefore-now)
	n.afterLocked(delay, func(time.Duration) {
		if c.gone || p.cut || !c.host.up {
			return
		}
		kind := Reset
		if err == syscall.ECONNREFUSED {
			kind = Refused
		}
		n.emitLocked(kind, from, c.host, c.id, 0, 0)
		c.failLocked(err)
	})
}
