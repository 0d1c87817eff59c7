package raftstreams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
)

// FirstByte is the first byte of a connection between voters. The node's port passes such connections to the Listener of Streams.
const FirstByte = 'R'

const (
	greetingVersion  = 1
	greetingBytesMax = 1024
	// greetingTimeout bounds the exchange of greetings. Raft's heartbeats wait for it on a new connection.
	greetingTimeout = 2 * time.Second
)

// greeting identifies both ends of a connection.
type greeting struct {
	cluster  string
	epoch    uint64
	from, to string
}

func (g greeting) write(w io.Writer) error {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(5)
	e.Uint(greetingVersion)
	e.Str(g.cluster)
	e.Uint(g.epoch)
	e.Str(g.from)
	e.Str(g.to)
	return writeShort(w, e.Bytes())
}

func readGreeting(r io.Reader) (greeting, error) {
	b, err := readShort(r)
	if err != nil {
		return greeting{}, err
	}
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return greeting{}, errors.New("greeting is not one MessagePack value")
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if v := d.Uint(); d.Err() == nil && v != greetingVersion {
		return greeting{}, fmt.Errorf("greeting has version %d, this program knows %d", v, greetingVersion)
	}
	g := greeting{cluster: d.Str(), epoch: d.Uint(), from: d.Str(), to: d.Str()}
	if d.Err() != nil || n != 5 {
		return greeting{}, errors.New("malformed greeting")
	}
	return g, nil
}

// writeShort writes b after its length in two bytes, with one write.
func writeShort(w io.Writer, b []byte) error {
	if len(b) > greetingBytesMax {
		return fmt.Errorf("greeting of %d bytes, at most %d", len(b), greetingBytesMax)
	}
	_, err := w.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
	return err
}

func readShort(r io.Reader) ([]byte, error) {
	var h [2]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	n := int(h[0])<<8 | int(h[1])
	if n > greetingBytesMax {
		return nil, fmt.Errorf("greeting of %d bytes, at most %d", n, greetingBytesMax)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// Config has what streams need. All fields are required except RequireNode.
type Config struct {
	// Listener accepts connections whose first byte was FirstByte, without that byte.
	Listener net.Listener
	// Cluster, Epoch and Node are this node's end of each connection. The epoch grows when the group was recovered with fewer voters.
	Cluster string
	Epoch   uint64
	Node    string
	// Resolve returns the current address of a node.
	Resolve func(id string) (string, bool)
	// Dial connects to a node at an address.
	Dial func(ctx context.Context, id, addr string) (net.Conn, error)
	// RequireNode returns an error unless the connection is from that node. Nil on an open node, which cannot verify it.
	RequireNode func(c net.Conn, id string) error
	Log         *slog.Logger
}

// Streams carries Raft's connections over the node's port. It implements raftmeta.Streams, with node ids as addresses.
type Streams struct {
	cfg     Config
	refused loglimit.ByReason

	once     sync.Once
	welcomed chan net.Conn
	ended    chan struct{} // closed with the listener
}

// New returns the streams of one Raft group.
func New(cfg Config) *Streams { return &Streams{cfg: cfg} }

// Close implements net.Listener. It closes cfg.Listener.
func (s *Streams) Close() error { return s.cfg.Listener.Close() }

// Addr implements net.Listener.
func (s *Streams) Addr() net.Addr { return s.cfg.Listener.Addr() }

// voterConn is a connection whose certificate names the voter. It implements raftmeta.AuthenticatedConn.
type voterConn struct {
	net.Conn
	id string
}

// Server implements raftmeta.AuthenticatedConn.
func (c *voterConn) Server() string { return c.id }

// greetingsMax bounds the connections that wait for a greeting, greetingsOfOne those of one node; more are closed. In a cluster with
// certificates, all peers that are not nodes count as one, so that they cannot keep voters out.
const (
	greetingsMax   = 64
	greetingsOfOne = 16
)

// greetings counts the connections that wait for a greeting.
type greetings struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by node
}

// begin counts a connection until end is called. It reports false if there are too many.
func (g *greetings) begin(c net.Conn) (end func(), ok bool) {
	most, node := greetingsMax, ""
	if secured, is := c.(*pki.Conn); is {
		if most = greetingsOfOne; secured.Peer.Kind == pki.Node {
			node = secured.Peer.Name
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= greetingsMax || g.of[node] >= most {
		return nil, false
	}
	if g.of == nil {
		g.of = map[string]int{}
	}
	g.all++
	g.of[node]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.all--
		if g.of[node]--; g.of[node] == 0 {
			delete(g.of, node)
		}
	}, true
}

// Accept returns the next connection of another voter of this group. Greetings are awaited concurrently: a silent peer must not
// delay the others.
func (s *Streams) Accept() (net.Conn, error) {
	s.once.Do(func() {
		s.welcomed = make(chan net.Conn)
		s.ended = make(chan struct{})
		go s.welcomeAll()
	})
	select {
	case c := <-s.welcomed:
		return c, nil
	case <-s.ended:
		return nil, net.ErrClosed
	}
}

// welcomeAll exchanges greetings with all peers until the listener is closed.
func (s *Streams) welcomeAll() {
	defer close(s.ended)
	var greeted greetings
	for {
		c, err := s.cfg.Listener.Accept()
		if err != nil {
			return
		}
		end, ok := greeted.begin(c)
		if !ok {
			_ = c.Close()
			continue
		}
		go func() {
			defer end()
			from, err := s.welcome(c)
			if err != nil {
				s.reject(c.RemoteAddr().String(), err)
				_ = c.Close()
				return
			}
			if s.cfg.RequireNode != nil {
				c = &voterConn{c, from}
			}
			select {
			case s.welcomed <- c:
			case <-s.ended:
				_ = c.Close()
			}
		}()
	}
}

// welcome exchanges greetings and returns the peer's node id. In a cluster with certificates the certificate proves it.
func (s *Streams) welcome(c net.Conn) (from string, err error) {
	if err := c.SetDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return "", err
	}
	g, err := readGreeting(c)
	if err != nil {
		return "", err
	}
	if s.cfg.RequireNode != nil {
		err = s.cfg.RequireNode(c, g.from)
	}
	if err == nil {
		err = s.check(g)
	}
	if err != nil {
		_ = writeShort(c, []byte(err.Error()))
		return "", err
	}
	if err := writeShort(c, nil); err != nil {
		return "", err
	}
	return g.from, c.SetDeadline(time.Time{})
}

// check returns why a peer is not a voter of this group.
func (s *Streams) check(g greeting) error {
	switch own := &s.cfg; {
	case g.cluster != own.Cluster:
		return fmt.Errorf("node %s belongs to cluster %s, node %s to cluster %s", g.from, g.cluster, own.Node, own.Cluster)
	case g.to != own.Node:
		return fmt.Errorf("node %s calls node %s, but this is node %s", g.from, g.to, own.Node)
	case g.epoch != own.Epoch:
		return fmt.Errorf("node %s has epoch %d of the lock service, node %s epoch %d: one of them was left out of \"stele raft recover\"",
			g.from, g.epoch, own.Node, own.Epoch)
	}
	return nil
}

// Dial connects to the voter with that id.
func (s *Streams) Dial(id string, timeout time.Duration) (net.Conn, error) {
	addr, known := s.cfg.Resolve(id)
	if !known {
		return nil, fmt.Errorf("address of node %s is unknown", id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := s.cfg.Dial(ctx, id, addr)
	if err != nil {
		return nil, err
	}
	if err := s.greet(c, id, min(timeout, greetingTimeout)); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("greet node %s at %s: %w", id, addr, err)
	}
	return c, nil
}

func (s *Streams) greet(c net.Conn, id string, timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{FirstByte}); err != nil {
		return err
	}
	g := greeting{cluster: s.cfg.Cluster, epoch: s.cfg.Epoch, from: s.cfg.Node, to: id}
	if err := g.write(c); err != nil {
		return err
	}
	why, err := readShort(c)
	if err != nil {
		return err
	}
	if len(why) > 0 {
		err := fmt.Errorf("refused: %s", why)
		s.reject(id, err)
		return err
	}
	return c.SetDeadline(time.Time{})
}

// reject logs a rejected connection. That a peer has closed it is no news.
func (s *Streams) reject(peer string, err error) {
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.refused.WarnError(s.cfg.Log, "connection rejected", err, "peer", peer)
	}
}
