package monitor

import (
	"container/list"
	"errors"
	"net"
	"net/http"
	"sync"
)

var errCrowded = errors.New("too many concurrent HTTP connections")

// conns bounds the connections of an HTTP server. One more connection closes the one that has waited longest for a complete request or, if
// all are being answered, is closed itself.
type conns struct {
	max     int
	refused func(net.Addr, error)

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		all     map[net.Conn]*list.Element // its place in waiting; nil while it is answered
		waiting list.List                  // of net.Conn, the longest first
	}
}

func newConns(max int, refused func(net.Addr, error)) *conns {
	c := &conns{max: max, refused: refused}
	c.mu.all = map[net.Conn]*list.Element{}
	return c
}

// note is for http.Server.ConnState, which reports a new connection before the next is accepted.
func (c *conns) note(conn net.Conn, state http.ConnState) {
	if gone := c.count(conn, state); gone != nil {
		c.refused(gone.RemoteAddr(), errCrowded)
		if over, ok := gone.(interface{ NetConn() net.Conn }); ok {
			gone = over.NetConn() // closing TLS would wait
		}
		_ = gone.Close()
	}
}

// count returns the connection to close, if any.
func (c *conns) count(conn net.Conn, state http.ConnState) (gone net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place, known := c.mu.all[conn]
	switch {
	case state == http.StateNew:
		c.mu.all[conn] = c.mu.waiting.PushBack(conn)
		if len(c.mu.all) > c.max {
			gone = c.mu.waiting.Front().Value.(net.Conn)
			c.forgetLocked(gone)
		}
	case !known: // already closed
	case state == http.StateActive && place != nil:
		c.mu.waiting.Remove(place)
		c.mu.all[conn] = nil
	case state == http.StateIdle && place == nil:
		c.mu.all[conn] = c.mu.waiting.PushBack(conn)
	case state == http.StateClosed, state == http.StateHijacked:
		c.forgetLocked(conn)
	}
	return gone
}

func (c *conns) forgetLocked(conn net.Conn) {
	if place := c.mu.all[conn]; place != nil {
		c.mu.waiting.Remove(place)
	}
	delete(c.mu.all, conn)
}
