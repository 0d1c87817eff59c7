package rpc

import (
	"fmt"
	"net"
	"sync"
)

// claimed is a listener for connections that open with one given byte.
type claimed struct {
	srv   *Server
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

// claimQueue is the number of connections that may wait for Accept; one more is
// closed.
const claimQueue = 64

// Claim returns a listener for those of the server's connections whose first byte
// is first. That byte is consumed: the dialer sends it, then speaks its own
// protocol. Claim must be called before the first Serve; it panics for a byte that
// is taken, by the framed mode ('S'), by MessagePack arrays or by another Claim.
// The listener ends with the server; its Addr is that of a listener of the server.
func (s *Server) Claim(first byte) net.Listener {
	if s.claims[first] != nil || first == 'S' || opensPlain(first) {
		panic(fmt.Sprintf("BUG: first byte %#02x is taken", first))
	}
	l := &claimed{srv: s, conns: make(chan net.Conn, claimQueue), done: make(chan struct{})}
	s.claims[first] = l
	return l
}

// opensPlain tells whether b is the first byte of a MessagePack array.
func opensPlain(b byte) bool { return b&0xf0 == 0x90 || b == 0xdc || b == 0xdd }

func (l *claimed) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// offer hands a connection over, and tells whether it was taken.
func (l *claimed) offer(c net.Conn) bool {
	select {
	case <-l.done:
		return false
	default:
	}
	select {
	case l.conns <- c:
		return true
	default:
		return false
	}
}

func (l *claimed) Close() error {
	l.once.Do(func() {
		close(l.done)
		for {
			select {
			case c := <-l.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *claimed) Addr() net.Addr {
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	for x := range l.srv.mu.listeners {
		return x.Addr()
	}
	return &net.TCPAddr{}
}
