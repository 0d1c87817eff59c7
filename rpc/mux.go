package rpc

import (
	"fmt"
	"net"
	"sync"
)

// claimed is a listener for connections that start with a given byte.
type claimed struct {
	srv   *Server
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

// claimQueue is the number of connections that may wait for Accept. Further ones are closed.
const claimQueue = 64

// Claim returns a listener for connections whose first byte is first. The server consumes that
// byte; the dialer sends it and then uses its own protocol. Claim must be called before the first
// Serve. It panics if the byte is in use by the framed mode ('S'), MessagePack arrays or another
// Claim. The listener closes with the server. Its Addr is that of one of the server's listeners.
func (s *Server) Claim(first byte) net.Listener {
	if s.claims[first] != nil || first == 'S' || opensPlain(first) {
		panic(fmt.Sprintf("BUG: first byte %#02x is in use", first))
	}
	l := &claimed{srv: s, conns: make(chan net.Conn, claimQueue), done: make(chan struct{})}
	s.claims[first] = l
	return l
}

// opensPlain reports whether b is the first byte of a MessagePack array.
func opensPlain(b byte) bool { return b&0xf0 == 0x90 || b == 0xdc || b == 0xdd }

func (l *claimed) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// offer queues a connection for Accept and reports whether it did.
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
