package simnet

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
)

// segmentMax bounds one segment, so that a large write arrives in parts.
const segmentMax = 64 << 10

type connState uint8

const (
	connecting  connState = iota // at the client
	synReceived                  // at the server
	established
)

// Conn is one end of a connection. It implements net.Conn and has the methods of net.TCPConn that
// the nodes use.
type Conn struct {
	net           *Network
	host          *Host
	id            uint64 // of the connection
	key           uint64 // of this end: odd at the server
	local, remote *net.TCPAddr
	in, out       *half
	listener      *Listener // of a server's end

	readable chan struct{} // wakes a reader
	writable chan struct{} // wakes the writer that waits for space
	turn     chan struct{} // wakes a writer that waits for another to end
	dialed   chan struct{} // wakes the dialer

	state     connState
	closed    bool  // by Close, or by the end of the process
	gone      bool  // the host has no such connection any more
	clean     bool  // it was closed, and the other end has received everything
	hangUp    bool  // Close resets
	endSent   bool  // the end of out was sent
	writing   bool  // a Write waits for space
	err       error // why the connection failed
	readers   int   // readers that wait
	writers   int   // writers that wait for their turn
	readEnd   deadline
	writeEnd  deadline
	readTimer *time.Timer // unused timer for a reader's wait
	backoff   time.Duration
	begun     time.Duration // when the dial began
}

// deadline is when reads or writes begin to fail. Zero means never.
type deadline struct{ at time.Time }

func (d deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// newConnLocked returns an end of the connection with the number key/2.
func (n *Network) newConnLocked(h *Host, key uint64, local, remote *net.TCPAddr) *Conn {
	c := &Conn{
		net: n, host: h, id: key / 2, key: key, local: local, remote: remote,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	h.conns[key] = c
	return c
}

// LocalAddr returns the address of this end, a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// opError returns an error in the form of package net.
func (c *Conn) opError(op string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Read implements net.Conn. Data that arrived before a failure of the connection can be read.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		n, err, wait := c.tryRead(p)
		if !wait {
			return n, err
		}
	}
}

// tryRead reads what is there, or waits for a change.
func (c *Conn) tryRead(p []byte) (n int, err error, wait bool) {
	c.net.mu.Lock()
	n, err, wait = c.readLocked(p)
	if !wait {
		if c.readers > 0 && (c.closed || c.gone || c.in.ended || c.in.delivered > c.in.read) {
			signal(c.readable)
		}
		c.net.mu.Unlock()
		return n, err, false
	}
	c.readers++
	end, timer := c.readEnd, c.readTimer
	c.readTimer = nil
	c.net.mu.Unlock()

	timer = waitFor(c.readable, end, timer)

	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.readers--
	c.readTimer = timer
	return 0, nil, true
}

// waitFor waits for a signal, but not longer than the deadline. It returns the timer for later use.
func waitFor(c chan struct{}, end deadline, timer *time.Timer) *time.Timer {
	if end.at.IsZero() {
		<-c
		return timer
	}
	if d := time.Until(end.at); timer == nil {
		timer = time.NewTimer(d)
	} else {
		timer.Reset(d)
	}
	select {
	case <-c:
	case <-timer.C:
	}
	timer.Stop()
	return timer
}

func (c *Conn) readLocked(p []byte) (n int, err error, wait bool) {
	if c.closed {
		return 0, c.opError("read", net.ErrClosed), false
	}
	if c.readEnd.passed() {
		return 0, c.opError("read", os.ErrDeadlineExceeded), false
	}
	if len(p) == 0 {
		return 0, nil, false
	}
	in := c.in
	if n := min(len(p), int(in.delivered-in.read)); n > 0 {
		in.buf.read(p[:n], &c.net.buffers)
		in.read += uint64(n)
		in.wakeWriterLocked()
		return n, nil, false
	}
	switch {
	case in.ended:
		return 0, io.EOF, false
	case c.gone:
		return 0, c.opError("read", c.err), false
	}
	return 0, nil, true
}

// Write implements net.Conn. It returns when all bytes are in the send buffer. Concurrent writes do
// not mix.
func (c *Conn) Write(p []byte) (total int, err error) {
	owner := false // this Write holds c.writing
	for {
		c.net.mu.Lock()
		if owner || !c.writing {
			var n int
			n, err = c.sendLocked(p[total:])
			total += n
		} else {
			err = c.writableLocked()
		}
		if err != nil || (owner || !c.writing) && total == len(p) {
			c.endWriteLocked(owner)
			c.net.mu.Unlock()
			return total, err
		}
		if !owner && !c.writing {
			owner, c.writing = true, true
		}
		c.waitToWrite(owner)
	}
}

// endWriteLocked lets the next Write proceed.
func (c *Conn) endWriteLocked(owner bool) {
	if owner {
		c.writing = false
	}
	if !c.writing && c.writers > 0 || c.closed || c.gone {
		signal(c.turn)
	}
}

// waitToWrite waits for space, or for the turn. It is called with the lock held and releases it.
func (c *Conn) waitToWrite(owner bool) {
	wake, end := c.writable, c.writeEnd
	if !owner {
		wake = c.turn
		c.writers++
	}
	c.net.mu.Unlock()
	if timer := waitFor(wake, end, nil); timer != nil {
		timer.Stop()
	}
	if !owner {
		c.net.mu.Lock()
		c.writers--
		c.net.mu.Unlock()
	}
}

func (c *Conn) writableLocked() error {
	switch {
	case c.closed:
		return c.opError("write", net.ErrClosed)
	case c.writeEnd.passed():
		return c.opError("write", os.ErrDeadlineExceeded)
	case c.gone:
		return c.opError("write", c.err)
	case c.endSent:
		return c.opError("write", syscall.EPIPE)
	}
	return nil
}

// sendLocked sends what fits.
func (c *Conn) sendLocked(p []byte) (n int, err error) {
	if err := c.writableLocked(); err != nil {
		return 0, err
	}
	for n < len(p) {
		size := min(len(p)-n, c.out.freeLocked(), segmentMax)
		if size <= 0 {
			break
		}
		part := p[n : n+size]
		c.out.buf.write(part, &c.net.buffers)
		c.out.written += uint64(size)
		if c.net.cfg.Events != nil {
			c.net.emitLocked(StreamSent, c.host, c.out.dst.host, c.id, size, xxhash.Sum64(part))
		}
		c.out.sendLocked(size, segmentData)
		n += size
	}
	return n, nil
}

// Close implements net.Conn. The other end gets the bytes written and then the end of the stream,
// or a reset if this end has bytes that were not read.
func (c *Conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closeLocked(c.hangUp)
	return nil
}

// closeLocked closes the connection for the process. The host may still send what is buffered.
func (c *Conn) closeLocked(reset bool) {
	unread := c.in.delivered > c.in.read
	c.closed = true
	c.signalAllLocked()
	switch {
	case c.gone:
		c.releaseLocked()
	case reset || unread || c.state != established:
		c.abortLocked()
	default:
		c.sendEndLocked()
	}
}

// CloseWrite ends the stream to the other end.
func (c *Conn) CloseWrite() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	switch {
	case c.closed:
		return c.opError("close", net.ErrClosed)
	case c.gone:
		return c.opError("shutdown", syscall.ENOTCONN)
	}
	c.sendEndLocked()
	return nil
}

func (c *Conn) sendEndLocked() {
	if c.endSent {
		c.forgetLocked()
		return
	}
	c.endSent = true
	c.out.sendLocked(0, segmentEnd)
}

// SetLinger with zero seconds makes Close reset the connection.
func (c *Conn) SetLinger(sec int) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.hangUp = sec == 0
	return nil
}

// abortLocked resets the connection.
func (c *Conn) abortLocked() {
	if p := c.out.dst; p != nil && c.host.up {
		var behind time.Duration // the reset does not overtake what is on the wire
		if !c.out.stalled && c.out.next < len(c.out.segments) {
			behind = c.out.lastAt
		}
		c.net.resetLocked(p, c.out.path, c.host, behind, syscall.ECONNRESET)
	}
	c.failLocked(net.ErrClosed)
}

// failLocked ends a connection at this host.
func (c *Conn) failLocked(err error) {
	if c.gone {
		return
	}
	c.gone, c.err = true, err
	c.out.abandonLocked()
	c.host.removeLocked(c)
	c.signalAllLocked()
	if c.listener != nil && c.state == synReceived {
		c.listener.halfOpen--
	}
	if c.closed {
		c.releaseLocked()
	}
	if p := c.out.dst; p != nil {
		p.probeLocked(1)
	}
}

// probes is how many keepalive probes of a connection fail before it does.
const probes = 9

// probeLocked checks a connection whose other end is gone, after Config.KeepAlive. The other end's
// host answers with a reset. A connection with two ends needs no probe.
func (c *Conn) probeLocked(count int) {
	if c.gone {
		return
	}
	c.net.afterLocked(c.net.cfg.KeepAlive, func(time.Duration) {
		there, other := c.out.path, c.out.dst.host
		switch {
		case c.gone:
			return
		case count >= probes:
			c.net.emitLocked(TimedOut, c.host, other, c.id, 0, 0)
			c.failLocked(syscall.ETIMEDOUT)
			return
		case !there.cut && other.up && !c.in.path.cut:
			c.net.resetLocked(c, c.in.path, other, 0, syscall.ECONNRESET)
		}
		c.probeLocked(count + 1)
	})
}

// forgetLocked ends a connection that was closed and has nothing left to send.
func (c *Conn) forgetLocked() {
	if c.closed && c.endSent && c.out.head == len(c.out.segments) {
		c.clean = true
		c.failLocked(net.ErrClosed)
	}
}

// releaseLocked frees the buffer of bytes that will not be read.
func (c *Conn) releaseLocked() {
	if c.out.dst == nil || c.out.dst.gone && c.out.dst.closed {
		c.in.buf.release(&c.net.buffers)
		c.out.buf.release(&c.net.buffers)
	}
}

func (c *Conn) signalAllLocked() {
	signal(c.readable)
	signal(c.writable)
	signal(c.turn)
	if c.dialed != nil {
		signal(c.dialed)
	}
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(t, true, true) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, true, false) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, false, true) }

func (c *Conn) setDeadline(t time.Time, read, write bool) error {
	if !t.IsZero() {
		t = time.Now().Add(time.Until(t)) // by the monotonic clock from here on
	}
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read {
		c.readEnd.at = t
		if c.readers > 0 {
			signal(c.readable)
		}
	}
	if write {
		c.writeEnd.at = t
		signal(c.writable)
		signal(c.turn)
	}
	return nil
}
