package clustertest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeListener is an in-process network for tests in virtual time. Written bytes can be read at
// once.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

// dial returns the peer of a connection that Accept returns.
func (l *pipeListener) dial() (net.Conn, error) {
	a, b := newPipeBuffer(), newPipeBuffer()
	select {
	case l.conns <- &pipeConn{in: a, out: b}:
		return &pipeConn{in: b, out: a}, nil
	case <-l.done:
		return nil, os.ErrClosed
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// pipeBuffer is one direction of a connection.
type pipeBuffer struct {
	Mu     sync.Mutex
	change sync.Cond // of the fields below
	b      []byte
	closed bool
	by     time.Time // read deadline
	timer  *time.Timer
}

func newPipeBuffer() *pipeBuffer {
	p := &pipeBuffer{}
	p.change.L = &p.Mu
	return p
}

func (p *pipeBuffer) read(to []byte) (int, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for len(p.b) == 0 {
		switch {
		case p.closed:
			return 0, io.EOF
		case !p.by.IsZero() && !time.Now().Before(p.by):
			return 0, os.ErrDeadlineExceeded
		}
		p.change.Wait()
	}
	n := copy(to, p.b)
	p.b = p.b[n:]
	return n, nil
}

func (p *pipeBuffer) write(b []byte) (int, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	p.b = append(p.b, b...)
	p.change.Broadcast()
	return len(b), nil
}

func (p *pipeBuffer) close() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.closed = true
	p.change.Broadcast()
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (p *pipeBuffer) setDeadline(by time.Time) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.by = by
	if !by.IsZero() {
		p.timer = time.AfterFunc(time.Until(by), func() {
			p.Mu.Lock()
			defer p.Mu.Unlock()
			p.change.Broadcast()
		})
	}
	p.change.Broadcast()
}

type pipeConn struct{ in, out *pipeBuffer }

func (c *pipeConn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *pipeConn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *pipeConn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

func (c *pipeConn) LocalAddr() net.Addr              { return pipeAddr{} }
func (c *pipeConn) RemoteAddr() net.Addr             { return pipeAddr{} }
func (c *pipeConn) SetWriteDeadline(time.Time) error { return nil } // a write never blocks
func (c *pipeConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *pipeConn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(t)
	return nil
}
