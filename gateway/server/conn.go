package server

import (
	"bufio"
	"net"
	"sync"

	"github.com/steledb/stele/gateway/bigtable"
)

// copies is how many bytes are charged for a byte of a request.
const copies = bigtable.ReceivedCopies

// readBufferBytes is the size of the buffer between the network and Read.
const readBufferBytes = 32 << 10

// conn is a connection that charges the payload of requests. Read and Write are each called by one
// goroutine.
type conn struct {
	net.Conn
	memory *memory
	caller Caller // nil without Config.Caller
	once   sync.Once

	// buffered reads from Conn. grpc-go has no buffer of its own, so that the frames that were followed are those that it has processed.
	buffered       *bufio.Reader
	received, sent frames
	// newest is the stream of the last HEADERS frame that was read. Only the goroutine that reads uses it.
	newest *stream

	// account is guarded by memory.mu.
	account account
}

// account has the charges of a connection, besides connBytes.
type account struct {
	owner   string
	charged int64 // of streams and calls
	calls   int
	streams map[uint32]*stream
	last    uint32 // the largest number of a stream
}

// stream is a call, as its frames show it. It is guarded by memory.mu.
type stream struct {
	bytes   int64 // of its DATA frames, less those of messages that its handler needs no longer
	charged int64 // for them
	grouped bool  // it is a call of MutateRows. The tap sets it before there are bytes, and it does not change.
	running bool  // its handler, which uses what is charged, has begun and not ended
	ended   bool  // either side has ended or reset it, or its connection is closed
}

func newConn(nc net.Conn, m *memory) *conn {
	return &conn{Conn: nc, memory: m, buffered: bufio.NewReaderSize(nc, readBufferBytes)}
}

// Read implements net.Conn. If the bytes of requests exceed a limit, it waits, so that the peer stops
// sending.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.buffered.Read(b)
	var over <-chan struct{}
	c.received.follow(b[:n], func(f frame) {
		switch f.kind {
		case frameData, frameHeaders, frameReset:
			if wait := c.memory.in(c, f); wait != nil {
				over = wait // until stall finds that it need not wait, whatever follows in b
			}
		}
	})
	if over != nil {
		c.memory.stall(c, over)
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.follow(b[:n], func(f frame) {
		if f.ends() {
			c.memory.out(c, f)
		}
	})
	return n, err
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

// Accept implements net.Listener. It closes connections for which there is no place.
func (l listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newConn(nc, l.memory)
		c.received.skip = prefaceBytes
		owner := ""
		if l.caller != nil {
			c.caller = l.caller(nc)
			owner = c.caller.Owner()
		}
		if l.memory.add(c, owner) {
			return c, nil
		}
		_ = c.Close()
	}
}
