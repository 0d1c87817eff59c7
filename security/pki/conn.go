package pki

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// Conn is a TLS connection after its handshake.
type Conn struct {
	*tls.Conn
	// Peer is the peer by its certificate; anonymous if it sent none.
	Peer Peer

	endpoint *Endpoint
	number   uint64 // in Endpoint.mu.conns; 0 before register
	wire     *wire
	writing  sync.Mutex // held by a Write that makes wire buffer records
	// as is the identity of a peer that has authenticated without a certificate, and anonymous
	// before. Guarded by Endpoint.mu.
	as  Peer
	end *time.Timer // closes the connection when the certificate or the anonymous period expires
	// listener is the one that counts the connection as anonymous, at place; nil if the peer has a
	// certificate.
	listener *Listener
	place    *list.Element
}

// Write implements net.Conn. The records of p are sent together as far as a buffer is free for
// them.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) <= recordBytes {
		return c.Conn.Write(p)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.wire.hold()
	n, err := c.Conn.Write(p)
	if left := c.wire.release(); err == nil && left != nil {
		return 0, left
	}
	return n, err
}

// closeNotifyTimeout bounds the time for the TLS close notification, which is queued after pending
// writes and replies of the reader. It only informs the peer's log, so 0.1 s suffices.
const closeNotifyTimeout = 100 * time.Millisecond

// Close closes the connection. It waits at most closeNotifyTimeout for a peer that does not read.
func (c *Conn) Close() error {
	c.endpoint.unregister(c) // from here on only Close sets the timer
	c.end.Reset(closeNotifyTimeout)
	defer c.end.Stop()
	if c.listener != nil {
		c.listener.removeAnonymous(c)
	}
	if !c.writing.TryLock() { // a blocked Write holds the wire, and the close notification would wait for it
		err := c.wire.Close()
		_ = c.Conn.Close()
		return err
	}
	defer c.writing.Unlock()
	return c.Conn.Close()
}

// Stay records the identity of a peer that has authenticated without a certificate, and lets its
// connection last until then. The zero Time means no limit. Errors: *ManyConnsError; the connection
// then remains anonymous.
func (c *Conn) Stay(as Peer, until time.Time) error {
	if c.listener == nil {
		return nil
	}
	if err := c.endpoint.authenticate(c, as, until); err != nil {
		return err
	}
	c.listener.removeAnonymous(c)
	return nil
}

// authenticate counts a connection as that of a principal and sets its end. It ignores a connection
// that was closed meanwhile, because a timer would retain it.
func (e *Endpoint) authenticate(c *Conn, as Peer, until time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, open := e.mu.conns[c.number]; !open {
		return nil
	}
	if c.as.Kind == Anonymous {
		if err := e.countLocked(as); err != nil {
			return err
		}
		c.as = as
	}
	if until.IsZero() {
		c.end.Stop()
	} else {
		c.end.Reset(until.Sub(e.opts.Now()))
	}
	return nil
}

// countLocked counts a connection of a principal. Errors: *ManyConnsError.
func (e *Endpoint) countLocked(p Peer) error {
	if p.Kind != Principal {
		return nil
	}
	if most := e.opts.PrincipalConnsMax; e.mu.perPrincipal[p.Name] >= most {
		return &ManyConnsError{p.Name, most}
	}
	e.mu.perPrincipal[p.Name]++
	return nil
}

// peerLocked returns the peer by its certificate or, without one, by its other authentication.
func (c *Conn) peerLocked() Peer {
	if c.Peer.Kind == Anonymous {
		return c.as
	}
	return c.Peer
}

// register registers the connection for Disconnect and sets its end: the expiry of the peer's
// certificate, or the anonymous period. Errors: a *PeerError if the peer is refused by now,
// *ManyConnsError.
func (c *Conn) register(anonymousLife time.Duration) error {
	life := anonymousLife
	if c.Peer.Kind != Anonymous {
		life = c.Peer.Ends.Sub(c.endpoint.opts.Now())
	}
	c.end = time.AfterFunc(life, func() { _ = c.NetConn().Close() })
	c.endpoint.mu.Lock()
	err := c.endpoint.countLocked(c.Peer)
	if err == nil {
		c.endpoint.mu.made++
		c.number = c.endpoint.mu.made
		c.endpoint.mu.conns[c.number] = c
	}
	c.endpoint.mu.Unlock()
	if err != nil {
		c.end.Stop()
		return err
	}
	// The peer may have been refused since its handshake.
	if err := c.endpoint.checkRefused(c.Peer); err != nil {
		c.end.Stop()
		c.endpoint.unregister(c)
		return err
	}
	return nil
}

func (e *Endpoint) unregister(c *Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, open := e.mu.conns[c.number]; !open {
		return
	}
	delete(e.mu.conns, c.number)
	if p := c.peerLocked(); p.Kind == Principal {
		if e.mu.perPrincipal[p.Name]--; e.mu.perPrincipal[p.Name] == 0 {
			delete(e.mu.perPrincipal, p.Name)
		}
	}
}

// checkRefused returns a *PeerError if Options.Refuse rejects the peer.
func (e *Endpoint) checkRefused(p Peer) error {
	if e.opts.Refuse == nil || p.Kind == Anonymous {
		return nil
	}
	if err := e.opts.Refuse(p); err != nil {
		return &PeerError{Claims: p, Why: ErrRefused, Detail: err}
	}
	return nil
}

// Disconnect closes all connections, in both directions, to peers for which which returns true, and
// returns their number. Options.Refuse must already reject these peers, or they can reconnect.
func (e *Endpoint) Disconnect(which func(Peer) bool) int {
	e.mu.Lock()
	var gone []*Conn
	for _, c := range e.mu.conns {
		if which(c.peerLocked()) {
			gone = append(gone, c)
		}
	}
	e.mu.Unlock()
	for _, c := range gone {
		_ = c.NetConn().Close() // the owner gets an error and closes c
	}
	return len(gone)
}

// Principals returns the principals with connections, once per connection.
func (e *Endpoint) Principals() (all []Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.mu.conns {
		if p := c.peerLocked(); p.Kind == Principal {
			all = append(all, p)
		}
	}
	return all
}

// Dial connects to the node of that id at an address, or to any node of the cluster if the id is
// empty. The context also bounds the handshake. Errors: those of the network, *PeerError. Whether
// the node accepts our certificate is known only after the first read.
func (e *Endpoint) Dial(ctx context.Context, node, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return e.Over(ctx, node, nc)
}

// Over is Dial on an existing connection, which it takes ownership of.
func (e *Endpoint) Over(ctx context.Context, node string, nc net.Conn) (net.Conn, error) {
	below := &wire{Conn: nc, handshakeLeft: -1}
	c := &Conn{Conn: tls.Client(below, e.DialNode(node)), wire: below, endpoint: e}
	err := c.HandshakeContext(ctx)
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("handshake with %s: %w", nc.RemoteAddr(), err)
	}
	if c.Peer, err = e.verify(c.ConnectionState(), asServer); err == nil {
		err = c.register(0)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	return c, nil
}
