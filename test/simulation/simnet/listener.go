package simnet

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
)

// Listener accepts connections. It implements net.Listener.
type Listener struct {
	host  *Host
	bound netip.AddrPort
	ready chan struct{} // wakes a goroutine in Accept

	// These belong to Network.mu.
	accepted []*Conn // in the backlog
	halfOpen int     // connects that were not completed
	waiting  int     // goroutines in Accept
	closed   bool
}

// Listen binds a port of the host. The address is that of the host, a loopback address, or without
// IP address. Port 0 means an unused port.
func (h *Host) Listen(address string) (net.Listener, error) {
	l, err := h.listen(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	return l, nil
}

func (h *Host) listen(address string) (*Listener, error) {
	at, err := h.bindAddress(address)
	if err != nil {
		return nil, err
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.listenLocked(at)
}

func (h *Host) listenLocked(at netip.AddrPort) (*Listener, error) {
	if at.Port() == 0 {
		port, err := h.freePortLocked()
		if err != nil {
			return nil, err
		}
		at = netip.AddrPortFrom(at.Addr(), port)
	}
	for _, o := range h.listeners {
		if receives(o.bound, at) || receives(at, o.bound) {
			return nil, os.NewSyscallError("bind", syscall.EADDRINUSE)
		}
	}
	l := &Listener{host: h, bound: at, ready: make(chan struct{}, 1)}
	h.listeners = append(h.listeners, l)
	return l, nil
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.host.net.mu.Lock()
		if l.closed {
			l.host.net.mu.Unlock()
			signal(l.ready)
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
		}
		if len(l.accepted) > 0 {
			c := l.accepted[0]
			l.accepted = slices.Delete(l.accepted, 0, 1)
			if len(l.accepted) > 0 {
				signal(l.ready)
			}
			l.host.net.mu.Unlock()
			return c, nil
		}
		l.host.net.mu.Unlock()
		<-l.ready
	}
}

// establishLocked adds a connection to the backlog. It returns false if the listener was closed.
func (l *Listener) establishLocked(c *Conn) bool {
	if c.state == established {
		return true
	}
	if l.closed {
		c.failLocked(net.ErrClosed)
		return false
	}
	c.state = established
	l.halfOpen--
	l.accepted = append(l.accepted, c)
	signal(l.ready)
	return true
}

// Addr returns the address, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.bound) }

// Close implements net.Listener. It resets the connections that were not accepted.
func (l *Listener) Close() error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.closeLocked()
	return nil
}

func (l *Listener) closeLocked() {
	l.closed = true
	signal(l.ready)
	l.host.listeners = slices.DeleteFunc(l.host.listeners, func(o *Listener) bool { return o == l })
	for _, c := range l.accepted {
		if !c.closed {
			c.closeLocked(true)
		}
	}
	l.accepted = nil
}
