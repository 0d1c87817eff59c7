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

// Conn is a connection whose handshake is done.
type Conn struct {
	*tls.Conn
	// Peer is who is at the other end; anonymous if it has shown no certificate.
	Peer Peer

	of      *Endpoint
	wire    *wire
	writing sync.Mutex // held by who has the wire hold records back
	// as is whom a peer without certificate has proved to be, anonymous until then. Guarded by
	// Endpoint.mu.
	as  Peer
	end *time.Timer // closes the connection with the certificate's life, or a stranger's
	// in has counted the connection as a stranger's, at place; nil of a peer that is known.
	in    *Listener
	place *list.Element
}

// Write implements net.Conn: the records of p go out together, as far as there is memory for that.
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

// goodbyeMax is how long a connection that is closed may take to say so, which TLS does behind what it writes, and behind
// what its reader answers. A tenth of a second: it is for the log of the other end.
const goodbyeMax = 100 * time.Millisecond

// Close closes the connection. It waits for no peer that does not read, but for goodbyeMax.
func (c *Conn) Close() error {
	c.of.forget(c) // from now on nobody else sets the timer
	c.end.Reset(goodbyeMax)
	defer c.end.Stop()
	if c.in != nil {
		c.in.known(c)
	}
	if !c.writing.TryLock() { // TLS may take for written what the wire still writes, and wait to say goodbye behind it
		err := c.wire.Close()
		_ = c.Conn.Close()
		return err
	}
	defer c.writing.Unlock()
	return c.Conn.Close()
}

// Stay has the connection of a peer that has shown no certificate last until then, since
// it has proved otherwise who it is; the zero Time is for as long as its owner keeps it. Errors:
// *ManyConnsError, and then it is a stranger's still.
func (c *Conn) Stay(as Peer, until time.Time) error {
	if c.in == nil {
		return nil
	}
	if err := c.of.become(c, as, until); err != nil {
		return err
	}
	c.in.known(c)
	return nil
}

// become has a connection count as that of a principal, and last until then. One that was closed meanwhile is left alone: a timer
// would keep it.
func (e *Endpoint) become(c *Conn, as Peer, until time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, open := e.mu.conns[c]; !open {
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

// countLocked counts a connection of a principal.
func (e *Endpoint) countLocked(p Peer) error {
	if p.Kind != Principal {
		return nil
	}
	if most := e.opts.PrincipalConnsMax; e.mu.of[p.Name] >= most {
		return &ManyConnsError{p.Name, most}
	}
	e.mu.of[p.Name]++
	return nil
}

// whoLocked is who is at the other end, by whatever he has shown.
func (c *Conn) whoLocked() Peer {
	if c.Peer.Kind == Anonymous {
		return c.as
	}
	return c.Peer
}

// begin has the connection end when the peer's certificate does, or a stranger's time is
// over, and be found by Sever. Errors: a *PeerError for who is refused by now, *ManyConnsError.
func (c *Conn) begin(strangerLife time.Duration) error {
	life := strangerLife
	if c.Peer.Kind != Anonymous {
		life = c.Peer.Ends.Sub(c.of.opts.Now())
	}
	c.end = time.AfterFunc(life, func() { _ = c.NetConn().Close() })
	c.of.mu.Lock()
	err := c.of.countLocked(c.Peer)
	if err == nil {
		c.of.mu.conns[c] = struct{}{}
	}
	c.of.mu.Unlock()
	if err != nil {
		c.end.Stop()
		return err
	}
	// He may have come to be refused between his handshake and now.
	if err := c.of.refusal(c.Peer); err != nil {
		c.end.Stop()
		c.of.forget(c)
		return err
	}
	return nil
}

func (e *Endpoint) forget(c *Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, open := e.mu.conns[c]; !open {
		return
	}
	delete(e.mu.conns, c)
	if p := c.whoLocked(); p.Kind == Principal {
		if e.mu.of[p.Name]--; e.mu.of[p.Name] == 0 {
			delete(e.mu.of, p.Name)
		}
	}
}

// refusal returns a *PeerError for a peer that Options.Refuse turns away.
func (e *Endpoint) refusal(p Peer) error {
	if e.opts.Refuse == nil || p.Kind == Anonymous {
		return nil
	}
	if err := e.opts.Refuse(p); err != nil {
		return &PeerError{Claims: p, Why: ErrRefused, Detail: err}
	}
	return nil
}

// Sever ends all connections, from and to peers for whom which returns true, and returns
// how many those were. With Options.Refuse turning them away they get no new ones.
func (e *Endpoint) Sever(which func(Peer) bool) int {
	e.mu.Lock()
	var gone []*Conn
	for c := range e.mu.conns {
		if which(c.whoLocked()) {
			gone = append(gone, c)
		}
	}
	e.mu.Unlock()
	for _, c := range gone {
		_ = c.NetConn().Close() // its owner sees that, and closes it
	}
	return len(gone)
}

// Principals returns who has connections, by what he has shown, once for each connection.
func (e *Endpoint) Principals() (all []Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.mu.conns {
		if p := c.whoLocked(); p.Kind == Principal {
			all = append(all, p)
		}
	}
	return all
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
	below := &wire{Conn: nc, shaking: -1}
	c := &Conn{Conn: tls.Client(below, e.DialNode(node)), wire: below, of: e}
	err := c.HandshakeContext(ctx)
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("handshake with %s: %w", nc.RemoteAddr(), err)
	}
	if c.Peer, err = e.verify(c.ConnectionState(), asServer); err == nil {
		err = c.begin(0)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	return c, nil
}
