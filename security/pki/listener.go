package pki

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ListenerConfig bounds what strangers may take of a Listener. Zero means the default.
type ListenerConfig struct {
	// Endpoint is the node's.
	Endpoint *Endpoint
	// HandshakeTimeout is how long a handshake may take: 10 s.
	HandshakeTimeout time.Duration
	// HandshakesMax is how many are under way at once: 256. One more ends the oldest: a
	// good one takes milliseconds, so it is those who say nothing that give way.
	HandshakesMax int
	// Refused is told why a connection was not taken. It must not block. Nil is not.
	Refused func(from net.Addr, err error)
}

// Conn is a connection whose handshake is done.
type Conn struct {
	*tls.Conn
	// Peer is who is at the other end; anonymous if it has shown no certificate.
	Peer Peer
	end  *time.Timer // closes the connection with the certificate's life; nil for anonymous
}

// Close closes the connection.
func (c *Conn) Close() error {
	if c.end != nil {
		c.end.Stop()
	}
	return c.Conn.Close()
}

// errCrowded is why an old handshake gives way.
var errCrowded = errors.New("too many handshakes at once")

// Listener takes TLS connections alone. Its Accept returns each with its handshake done,
// as a *Conn: nobody who is slow at it, or speaks something else, keeps others waiting.
type Listener struct {
	inner  net.Listener
	cfg    ListenerConfig
	tls    *tls.Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  chan net.Conn
	errs   chan error

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		handshakes list.List // of *pending, the oldest first
	}
}

// pending is a handshake that is under way, or done and not yet accepted. Its fields are
// guarded by Listener.mu, but for conn.
type pending struct {
	conn net.Conn
	// done tells that the handshake is, crowded that it was ended to make room.
	done, crowded bool
}

// Listen returns a listener of TLS connections that come by inner, which it then owns.
func Listen(inner net.Listener, cfg ListenerConfig) *Listener {
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = 10 * time.Second
	}
	if cfg.HandshakesMax == 0 {
		cfg.HandshakesMax = 256
	}
	if cfg.Refused == nil {
		cfg.Refused = func(net.Addr, error) {}
	}
	l := &Listener{inner: inner, cfg: cfg, tls: cfg.Endpoint.Server(), ready: make(chan net.Conn), errs: make(chan error)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.tasks.Go(l.acceptLoop)
	return l
}

// Accept returns the next connection, a *Conn. Errors are those of the inner listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.errs:
		return nil, err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr returns the inner listener's.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close ends the listener and all handshakes. Connections that were accepted live on.
func (l *Listener) Close() error {
	l.cancel()
	err := l.inner.Close()
	l.mu.Lock()
	for e := l.mu.handshakes.Front(); e != nil; e = e.Next() {
		_ = e.Value.(*pending).conn.Close()
	}
	l.mu.Unlock()
	l.tasks.Wait()
	return err
}

func (l *Listener) acceptLoop() {
	for {
		c, err := l.inner.Accept()
		if err != nil {
			select {
			case l.errs <- err: // its caller may pause before it accepts again
			case <-l.ctx.Done():
				return
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		place := l.begin(c)
		l.tasks.Go(func() { l.serve(place) })
	}
}

// begin makes room for one more handshake. Where all are done and nobody accepts them, it
// is the new connection that is closed: its handshake fails.
func (l *Listener) begin(c net.Conn) *list.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &pending{conn: c}
	oldest := l.mu.handshakes.Front()
	for oldest != nil && oldest.Value.(*pending).done {
		oldest = oldest.Next()
	}
	switch {
	case l.ctx.Err() != nil:
		_ = c.Close()
	case l.mu.handshakes.Len() < l.cfg.HandshakesMax:
	case oldest == nil:
		h.crowded = true
		_ = c.Close()
	default:
		gone := oldest.Value.(*pending)
		l.mu.handshakes.Remove(oldest)
		gone.crowded = true
		_ = gone.conn.Close()
	}
	return l.mu.handshakes.PushBack(h)
}

// serve does a handshake and hands the connection over.
func (l *Listener) serve(place *list.Element) {
	h := place.Value.(*pending)
	c, err := l.shake(h.conn)
	l.mu.Lock()
	if err == nil && h.crowded {
		err = errCrowded
	}
	h.done = err == nil
	l.mu.Unlock()
	if h.done {
		select {
		case l.ready <- c:
		case <-l.ctx.Done():
			err = net.ErrClosed
			_ = c.Close()
		}
	}
	l.mu.Lock()
	l.mu.handshakes.Remove(place) // nothing if it is not there any more
	crowded := h.crowded
	l.mu.Unlock()
	switch {
	case err == nil || l.ctx.Err() != nil:
	case crowded:
		l.cfg.Refused(h.conn.RemoteAddr(), errCrowded)
	default:
		l.cfg.Refused(h.conn.RemoteAddr(), err)
	}
}

// shake does the handshake, and closes the connection unless it succeeds.
func (l *Listener) shake(nc net.Conn) (*Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.HandshakeTimeout)
	defer cancel()
	c := &Conn{Conn: tls.Server(nc, l.tls)}
	err := c.HandshakeContext(ctx)
	if err == nil {
		c.Peer, err = l.cfg.Endpoint.Identify(c.ConnectionState())
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	c.endWith(l.cfg.Endpoint.opts.Now())
	return c, nil
}

// endWith has the connection end when the peer's certificate does.
func (c *Conn) endWith(now time.Time) {
	if c.Peer.Kind != Anonymous {
		c.end = time.AfterFunc(c.Peer.Ends.Sub(now), func() { _ = c.Conn.NetConn().Close() })
	}
}

// Dial connects to the node of that id at an address, or to whichever node of the cluster
// is there if the id is empty. The context bounds the handshake as well. Errors: those of
// the network, *PeerError. Only a first read tells whether the node takes our certificate.
func (e *Endpoint) Dial(ctx context.Context, node, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return e.Over(ctx, node, nc)
}

// Over is Dial by a connection that is there, which it then owns.
func (e *Endpoint) Over(ctx context.Context, node string, nc net.Conn) (net.Conn, error) {
	c := &Conn{Conn: tls.Client(nc, e.DialNode(node))}
	err := c.HandshakeContext(ctx)
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("handshake with %s: %w", nc.RemoteAddr(), err)
	}
	if c.Peer, err = e.verify(c.ConnectionState(), asServer); err != nil {
		_ = nc.Close()
		return nil, err
	}
	c.endWith(e.opts.Now())
	return c, nil
}
