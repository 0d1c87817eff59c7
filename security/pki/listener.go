package pki

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// ListenerConfig bounds the resources that unauthenticated peers can take of a Listener. Zero
// fields mean their default.
type ListenerConfig struct {
	// Endpoint is that of the node.
	Endpoint *Endpoint
	// HandshakeTimeout bounds a handshake. Default 10 s.
	HandshakeTimeout time.Duration
	// HandshakesMax bounds the concurrent handshakes. Default 256. One more ends the oldest: an
	// honest handshake takes milliseconds, so the oldest is a silent one.
	HandshakesMax int
	// StrangerLife is how long a connection without a client certificate lasts, unless Conn.Stay
	// extends it. Default 1 minute. StrangersMax bounds the number of such connections. Default
	// 256. One more ends the oldest.
	StrangerLife time.Duration
	StrangersMax int
	// Protocols are the application protocols of which a client's list must have one (ALPN). Nil
	// accepts all lists.
	Protocols []string
	// NotTLS returns the answer to a peer that does not speak TLS. first is the part of its first
	// 32 bytes that has arrived. If NotTLS or its result is nil, the answer is a fatal alert.
	NotTLS func(first []byte) []byte
	// Refused is called with the reason when a connection is rejected. It must not block. It may be
	// nil.
	Refused func(from net.Addr, err error)
}

func (c ListenerConfig) withDefaults() ListenerConfig {
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	if c.HandshakesMax == 0 {
		c.HandshakesMax = 256
	}
	if c.StrangerLife == 0 {
		c.StrangerLife = time.Minute
	}
	if c.StrangersMax == 0 {
		c.StrangersMax = 256
	}
	if c.NotTLS == nil {
		c.NotTLS = func([]byte) []byte { return nil }
	}
	if c.Refused == nil {
		c.Refused = func(net.Addr, error) {}
	}
	return c
}

// errEvicted is the reason for ending an old handshake.
var errEvicted = errors.New("too many handshakes at once")

// Listener accepts TLS connections only. Accept returns each as a *Conn after its handshake, so a
// peer that is slow or speaks another protocol does not delay others.
type Listener struct {
	inner  net.Listener
	cfg    ListenerConfig
	tls    *tls.Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  chan net.Conn
	errs   chan error

	// mu guards the fields in it and is never held across I/O.
	mu struct {
		sync.Mutex
		handshakes list.List // of *pending, oldest first
		anonymous  list.List // of *Conn without a certificate, oldest first
	}
}

// pending is a handshake in progress, or complete but not yet accepted. Listener.mu guards its
// fields except conn.
type pending struct {
	conn net.Conn
	// done means that the handshake is complete, evicted that it was ended in favor of a newer one.
	done, evicted bool
}

// Listen returns a listener of TLS connections on inner, which it takes ownership of.
func Listen(inner net.Listener, cfg ListenerConfig) *Listener {
	cfg = cfg.withDefaults()
	l := &Listener{inner: inner, cfg: cfg, tls: cfg.Endpoint.Server(), ready: make(chan net.Conn), errs: make(chan error)}
	l.tls.NextProtos = cfg.Protocols
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.tasks.Go(l.acceptLoop)
	return l
}

// Accept returns the next connection, a *Conn. Errors: those of the inner listener.
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

// Addr returns the address of the inner listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close ends the listener and all handshakes. Accepted connections stay open.
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
			case l.errs <- err: // the caller may pause before the next Accept
			case <-l.ctx.Done():
				return
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		place := l.addHandshake(c)
		l.tasks.Go(func() { l.serve(place) })
	}
}

// addHandshake adds a handshake. At the limit it ends the oldest one in progress. If all are
// complete and waiting for Accept, it closes the new connection instead, and its handshake fails.
func (l *Listener) addHandshake(c net.Conn) *list.Element {
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
		h.evicted = true
		_ = c.Close()
	default:
		gone := oldest.Value.(*pending)
		l.mu.handshakes.Remove(oldest)
		gone.evicted = true
		_ = gone.conn.Close()
	}
	return l.mu.handshakes.PushBack(h)
}

// serve does a handshake and passes the connection to Accept.
func (l *Listener) serve(place *list.Element) {
	h := place.Value.(*pending)
	c, err := l.shake(h.conn)
	l.mu.Lock()
	if err == nil && h.evicted {
		err = errEvicted
	}
	h.done = err == nil
	l.mu.Unlock()
	if c != nil && !h.done {
		_ = c.Close()
	}
	if h.done {
		select {
		case l.ready <- c:
		case <-l.ctx.Done():
			err = net.ErrClosed
			_ = c.Close()
		}
	}
	l.mu.Lock()
	l.mu.handshakes.Remove(place) // no-op if it was removed already
	evicted := h.evicted
	l.mu.Unlock()
	switch {
	case err == nil:
	case l.ctx.Err() != nil && !causedByPeer(err): // ended by Close
	case evicted:
		l.cfg.Refused(h.conn.RemoteAddr(), errEvicted)
	default:
		l.cfg.Refused(h.conn.RemoteAddr(), err)
	}
}

// causedByPeer reports whether a handshake failed because of the data that the peer sent. Such a
// failure precedes any end of the connection by Close.
func causedByPeer(err error) bool {
	plain, peer := tls.RecordHeaderError{}, (*PeerError)(nil)
	return errors.As(err, &plain) || errors.As(err, &peer)
}

// shake does the handshake, and closes the connection unless it succeeds.
func (l *Listener) shake(nc net.Conn) (*Conn, error) {
	_ = nc.SetDeadline(time.Now().Add(l.cfg.HandshakeTimeout))
	below := &wire{Conn: nc, handshakeLeft: handshakeBytesMax}
	c := &Conn{Conn: tls.Server(below, l.tls), wire: below, endpoint: l.cfg.Endpoint}
	// Without a context, whose end would hide why a handshake failed. Close closes nc.
	err := c.Handshake()
	below.handshakeLeft = -1
	defer func() { below.head = nil }()
	if err == nil {
		c.Peer, err = l.cfg.Endpoint.Identify(c.ConnectionState())
	}
	plain, peer := tls.RecordHeaderError{}, (*PeerError)(nil)
	if errors.As(err, &plain) {
		answer := l.cfg.NotTLS(below.head)
		if answer == nil {
			answer = []byte{0x15, 3, 3, 0, 2, 2, 40} // fatal, handshake_failure
		}
		_ = nc.SetWriteDeadline(time.Now().Add(lingerTime))
		_, _ = nc.Write(answer)
		linger(nc)
	} else if errors.As(err, &peer) {
		linger(nc) // package tls has sent an alert
	}
	_ = nc.SetDeadline(time.Time{})
	if err == nil {
		err = c.register(l.cfg.StrangerLife)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	if c.Peer.Kind == Anonymous {
		l.addAnonymous(c)
	}
	return c, nil
}

// addAnonymous counts a connection as anonymous and ends the oldest ones in excess of StrangersMax.
func (l *Listener) addAnonymous(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.listener, c.place = l, l.mu.anonymous.PushBack(c)
	for l.mu.anonymous.Len() > l.cfg.StrangersMax {
		oldest := l.mu.anonymous.Front()
		l.mu.anonymous.Remove(oldest)
		_ = oldest.Value.(*Conn).NetConn().Close()
	}
}

// removeAnonymous stops counting a connection as anonymous.
func (l *Listener) removeAnonymous(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.anonymous.Remove(c.place) // no-op if it was removed already
}

// linger reads and discards what a rejected peer still sends. Closing with unread bytes would reset
// the connection and lose the alert.
func linger(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(lingerTime))
	if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, nc, lingerBytes)
	}
}

const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 64 << 10
)
