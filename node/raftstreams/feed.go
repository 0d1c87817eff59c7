package raftstreams

import (
	"net"
	"sync"
)

// Feed is a listener that is fed with connections accepted elsewhere.
type Feed struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

// feedMax bounds the connections that wait for Accept.
const feedMax = 64

// NewFeed returns a listener at addr without connections.
func NewFeed(addr net.Addr) *Feed {
	return &Feed{addr: addr, conns: make(chan net.Conn, feedMax), done: make(chan struct{})}
}

// Offer queues a connection and reports whether it was queued.
func (h *Feed) Offer(c net.Conn) bool {
	select {
	case <-h.done:
		return false
	default:
	}
	select {
	case h.conns <- c:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (h *Feed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Feed) Close() error {
	h.once.Do(func() { close(h.done) })
	for {
		select {
		case c := <-h.conns:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (h *Feed) Addr() net.Addr { return h.addr }
