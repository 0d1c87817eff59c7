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

// ListenerConfig bounds what strangers may take of a Listener. Zero means the default.
type ListenerConfig struct {
	// Endpoint is the node's.
	Endpoint *Endpoint
	// HandshakeTimeout is how long a handshake may take: 10 s.
	HandshakeTimeout time.Duration
	// HandshakesMax is how many are under way at once: 256. One more ends the oldest: a
	// good one takes milliseconds, so it is those who say nothing that give way.
	HandshakesMax int
	// StrangerLife is how long a connection lasts whose peer has shown no certificate, unless
	// Conn.Stay says otherwise: 1 minute. StrangersMax is how many of them there are at once:
	// 256. One more ends the oldest.
	StrangerLife time.Duration
	StrangersMax int
	// NotTLS returns what is answered to a peer whose first bytes, as many of the first 32 as have come, are not TLS.
	// Nil, or an answer of nil, is a fatal alert.
	NotTLS func(first []byte) []byte
	// Refused is told why a connection was not taken. It must not block. Nil is not.
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
		strangers  list.List // of *Conn, the oldest first
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
	cfg = cfg.withDefaults()
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
	l.mu.handshakes.Remove(place) // nothing if it is not there any more
	crowded := h.crowded
	l.mu.Unlock()
	switch {
	case err == nil:
	case l.ctx.Err() != nil && !judged(err): // ended by Close
	case crowded:
		l.cfg.Refused(h.conn.RemoteAddr(), errCrowded)
	default:
		l.cfg.Refused(h.conn.RemoteAddr(), err)
	}
}

// judged reports whether a handshake failed for what the peer has sent: that it failed is known before the connection ends.
func judged(err error) bool {
	plain, peer := tls.RecordHeaderError{}, (*PeerError)(nil)
	return errors.As(err, &plain) || errors.As(err, &peer)
}

// shake does the handshake, and closes the connection unless it succeeds.
func (l *Listener) shake(nc net.Conn) (*Conn, error) {
	_ = nc.SetDeadline(time.Now().Add(l.cfg.HandshakeTimeout))
	below := &wire{Conn: nc, shaking: handshakeBytesMax}
	c := &Conn{Conn: tls.Server(below, l.tls), wire: below, of: l.cfg.Endpoint}
	// Not by a context: its end would hide why a handshake has failed. Close closes nc.
	err := c.Handshake()
	below.shaking = -1
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
		_ = nc.SetWriteDeadline(time.Now().Add(sayTime))
		_, _ = nc.Write(answer)
		linger(nc)
	} else if errors.As(err, &peer) {
		linger(nc) // package tls has told why
	}
	_ = nc.SetDeadline(time.Time{})
	if err == nil {
		err = c.begin(l.cfg.StrangerLife)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	if c.Peer.Kind == Anonymous {
		l.welcome(c)
	}
	return c, nil
}

// welcome counts a connection of a stranger, and ends the oldest where there are too many.
func (l *Listener) welcome(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.in, c.place = l, l.mu.strangers.PushBack(c)
	for l.mu.strangers.Len() > l.cfg.StrangersMax {
		oldest := l.mu.strangers.Front()
		l.mu.strangers.Remove(oldest)
		_ = oldest.Value.(*Conn).NetConn().Close()
	}
}

// known counts a connection no more as a stranger's.
func (l *Listener) known(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.strangers.Remove(c.place) // nothing if it is not there any more
}

// linger reads what a peer still sends that was told by an alert why it is not taken: to close
// with bytes unread would take the alert back. Clients of ours know an alert by its first byte.
func linger(nc net.Conn) {
	_ = nc.SetDeadline(time.Now().Add(sayTime))
	if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, nc, sayBytes)
	}
}

const (
	sayTime  = 500 * time.Millisecond
	sayBytes = 64 << 10
)
