package server

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/stats"
)

// Sizes of HTTP/2 (RFC 9113).
const (
	prefaceBytes     = 24 // of a client's connection
	frameHeaderBytes = 9
	frameData        = 0 // the type of frames that have messages
)

// copies is how many bytes of memory a byte of a request takes: as it was received, in one piece, and
// decoded.
const copies = 3

// conn is a connection that charges the bytes of requests that it receives. Read is called by one
// goroutine.
type conn struct {
	net.Conn
	memory *memory
	caller Caller // nil without Config.Caller
	once   sync.Once

	// owner, charged and calls are guarded by memory.mu: the owner of the bytes, the bytes that are
	// charged, and the calls that have not ended.
	owner   string
	charged int64
	calls   int

	// The position in the frames: the bytes of the preface, the header or the payload that are still
	// to come, and the bytes of the header that have.
	skip   int
	data   bool // skip is of a DATA frame
	header [frameHeaderBytes]byte
	have   int
}

// Read implements net.Conn. If the bytes of all requests exceed the limit, it waits, so that the peer
// stops sending.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if data := c.count(b[:n]); data > 0 {
		if over := c.memory.received(c, copies*int64(data)); over != nil {
			c.memory.stall(c, over)
		}
	}
	return n, err
}

// count returns how many of the received bytes are payload of DATA frames.
func (c *conn) count(b []byte) (data int) {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			if c.skip -= n; c.data {
				data += n
			}
			b = b[n:]
			continue
		}
		n := copy(c.header[c.have:], b)
		c.have += n
		if b = b[n:]; c.have == frameHeaderBytes {
			c.have = 0
			c.skip = int(c.header[0])<<16 | int(c.header[1])<<8 | int(c.header[2])
			c.data = c.header[3] == frameData
		}
	}
	return data
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.memory.remove(c)
		if c.caller != nil {
			c.caller.Close()
		}
	})
	return c.Conn.Close()
}

// listener returns connections that charge their requests.
type listener struct {
	net.Listener
	memory *memory
	caller func(net.Conn) Caller // may be nil
}

// Accept implements net.Listener. It closes connections for which there is no memory.
func (l listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: nc, memory: l.memory, skip: prefaceBytes}
		if l.memory.add(c) {
			if l.caller != nil {
				c.caller = l.caller(nc)
			}
			return c, nil
		}
		_ = nc.Close()
	}
}

// accountant releases the bytes of requests when their calls end. It implements stats.Handler.
type accountant struct{ memory *memory }

// connKey and callKey are the keys of a connection and a call in contexts.
type (
	connKey struct{}
	callKey struct{}
)

// call is one call of a connection.
type call struct {
	conn  *conn
	bytes int64 // of its request, as they are charged
}

// HandleConn implements stats.Handler.
func (accountant) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC implements stats.Handler.
func (a accountant) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c := ctx.Value(connKey{}).(*conn)
	a.memory.began(c)
	return context.WithValue(ctx, callKey{}, &call{conn: c})
}

// HandleRPC implements stats.Handler.
func (a accountant) HandleRPC(ctx context.Context, s stats.RPCStats) {
	k, _ := ctx.Value(callKey{}).(*call)
	if k == nil {
		return
	}
	switch s := s.(type) {
	case *stats.InPayload:
		k.bytes += copies * int64(s.WireLength)
	case *stats.End:
		a.memory.ended(k.conn, k.bytes)
	}
}
