package pki

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is an in-memory network in virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// refusals counts the connections that a listener rejects.
type refusals struct {
	mu   sync.Mutex
	errs []error
}

func (r *refusals) add(_ net.Addr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *refusals) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.errs...)
}

// stage is a listener whose connections echo, and a node that dials it.
type stage struct {
	net     *pipes
	refused refusals
	l       *Listener
	client  *Endpoint
	a       *Authority
	peers   chan Peer
}

func newStage(t *testing.T, max int) *stage {
	t.Helper()
	s := &stage{net: newPipes(), peers: make(chan Peer, 100)}
	var err error
	if s.a, err = NewAuthority("c1", time.Now()); err != nil {
		t.Fatal(err)
	}
	s.client = NewEndpoint(nodeCredential(t, s.a, "n2", time.Now()), Options{})
	s.l = Listen(s.net, ListenerConfig{Endpoint: NewEndpoint(nodeCredential(t, s.a, "n1", time.Now()), Options{}), HandshakesMax: max, Refused: s.refused.add})
	return s
}

// serve accepts until the listener is closed.
func (s *stage) serve(wg *sync.WaitGroup) {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		s.peers <- c.(*Conn).Peer
		wg.Go(func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		})
	}
}

// call connects and exchanges one byte.
func (s *stage) call(e *Endpoint) (*tls.Conn, error) {
	c := tls.Client(s.net.dial(), e.DialNode("n1"))
	if err := c.Handshake(); err != nil {
		return c, err
	}
	return c, swapByte(c)
}

// TestListener: slow, silent and hostile peers do not block a good one.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 8)
		var wg sync.WaitGroup
		wg.Go(func() { s.serve(&wg) })

		var silent []net.Conn
		for i := range 50 {
			c := s.net.dial()
			silent = append(silent, c)
			if i%2 == 0 {
				go func() { _, _ = c.Write([]byte{0x16, 0x03}) }()
			}
		}
		synctest.Wait()
		if n := len(s.refused.all()); n != 42 {
			t.Errorf("%d of 50 were evicted, want 42", n)
		}
		start := time.Now()
		good, err := s.call(s.client)
		if err != nil {
			t.Fatal(err)
		}
		if p := <-s.peers; p.Kind != Node || p.Name != "n2" {
			t.Errorf("the peer is %v", p)
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("a good one waited for %v", waited)
		}
		for _, bytes := range []string{"STELE\x01\x00\n", "\x94\x00\x01\xa4ping\x90", strings.Repeat("\x00", 100)} {
			c := s.net.dial()
			over := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, c)
				close(over)
			}()
			_, _ = c.Write([]byte(bytes))
			select {
			case <-over:
			case <-time.After(time.Second):
				t.Errorf("%q: the connection is still open", bytes)
			}
			silent = append(silent, c)
		}
		time.Sleep(11 * time.Second)
		if n := len(s.refused.all()); n != 53 {
			t.Errorf("after 11 s %d are refused, want 53: %v", n, s.refused.all())
		}
		if err := swapByte(good); err != nil {
			t.Errorf("the good connection: %v", err)
		}
		stranger := *nodeCredential(t, newAuthorityT(t, "c2"), "n2", time.Now())
		stranger.trust = trustIn(t, s.a)
		bad := tls.Client(s.net.dial(), NewEndpoint(&stranger, Options{}).DialNode("n1"))
		if _, err := bad.Read(make([]byte, 1)); err == nil { // a write would wait for the alert to be sent
			t.Error("a node of another cluster was accepted")
		}
		synctest.Wait()
		if all := s.refused.all(); !errors.Is(all[len(all)-1], ErrOtherCluster) {
			t.Errorf("why: %v", all[len(all)-1])
		}
		anon, err := s.call(NewEndpoint(AnonymousCredential(trustIn(t, s.a)), Options{}))
		if err != nil {
			t.Error(err)
		}
		if p := <-s.peers; p.Kind != Anonymous {
			t.Errorf("the peer is %v", p)
		}
		for _, c := range append(silent, good, bad, anon) {
			_ = c.Close()
		}
		if err := s.l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if _, err := s.l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
	})
}

// TestEvictedAtTheEnd: a handshake that is evicted just as it succeeds is rejected, and its
// connection is closed.
func TestEvictedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 8)
		here, there := net.Pipe()
		s.l.mu.Lock()
		place := s.l.mu.handshakes.PushBack(&pending{conn: there, evicted: true})
		s.l.mu.Unlock()
		served := make(chan struct{})
		go func() {
			defer close(served)
			s.l.serve(place)
		}()
		c := tls.Client(here, s.client.DialNode("n1"))
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("its connection is open")
		}
		<-served
		if all := s.refused.all(); len(all) != 1 || !errors.Is(all[0], errEvicted) {
			t.Errorf("refused: %v", all)
		}
		if n := s.l.mu.handshakes.Len(); n != 0 {
			t.Errorf("%d handshakes are under way", n)
		}
		_ = c.Close()
		_ = s.l.Close()
	})
}

// TestLongHandshake (I13): a hello that declares a large size is not buffered.
func TestLongHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 8)
		var wg sync.WaitGroup
		wg.Go(func() { s.serve(&wg) })
		c := s.net.dial()
		go func() {
			for record := append([]byte{0x16, 3, 1, 0x10, 0, 1, 0, 0xf0, 0}, make([]byte, 4092)...); ; record = append([]byte{0x16, 3, 1, 0x10, 0}, make([]byte, 4096)...) {
				if _, err := c.Write(record); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		all := s.refused.all()
		if len(all) != 1 || !errors.Is(all[0], errLongHandshake) {
			t.Errorf("refused: %v", all)
		}
		good, err := s.call(s.client)
		if err != nil {
			t.Errorf("a good one: %v", err)
		}
		_, _ = good.Close(), c.Close()
		if err := s.l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// TestListenerNobodyAccepts: connections that wait for Accept are bounded, and not closed in favor
// of later ones.
func TestListenerNobodyAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 4)
		var conns []*tls.Conn
		for range 4 {
			c := tls.Client(s.net.dial(), s.client.DialNode("n1"))
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		synctest.Wait()
		late := tls.Client(s.net.dial(), s.client.DialNode("n1"))
		if err := late.Handshake(); err == nil {
			t.Error("one more was accepted")
		}
		var wg sync.WaitGroup
		wg.Go(func() { s.serve(&wg) })
		for i, c := range conns {
			if err := swapByte(c); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
			_ = c.Close()
		}
		if c, err := s.call(s.client); err != nil {
			t.Errorf("afterwards: %v", err)
		} else {
			_ = c.Close()
		}
		if err := s.l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// TestListenerCloses: Close ends handshakes and connections that were not accepted.
func TestListenerCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 4)
		silent := s.net.dial()
		done := tls.Client(s.net.dial(), s.client.DialNode("n1"))
		if err := done.Handshake(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := s.l.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range []net.Conn{silent, done} {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a connection lives on")
			}
			_ = c.Close()
		}
		if all := s.refused.all(); len(all) > 0 {
			t.Errorf("refused: %v", all)
		}
	})
}

// TestConnectionEndsWithCertificate: both ends close a connection when the other's certificate
// expires, and not earlier.
func TestConnectionEndsWithCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 4)
		var wg sync.WaitGroup
		wg.Go(func() { s.serve(&wg) })
		c, err := s.call(s.client)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(NodeLife - time.Hour)
		if err := swapByte(c); err != nil {
			t.Errorf("an hour before: %v", err)
		}
		time.Sleep(2 * time.Hour)
		if err := swapByte(c); err == nil {
			t.Error("the connection outlives its peer's certificate")
		}
		_ = c.Close()
		_ = s.l.Close()
		wg.Wait()
	})
}

// TestAnonymousConnections: K7, K8. A connection without a certificate ends after a minute unless
// its peer authenticates by other means, and earlier if there are too many.
func TestAnonymousConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		_ = s.l.Close()
		s.net = newPipes()
		s.l = Listen(s.net, ListenerConfig{Endpoint: s.client, StrangersMax: 3, Refused: s.refused.add})
		anonymous := NewEndpoint(AnonymousCredential(trustIn(t, s.a)), Options{})
		var wg sync.WaitGroup
		meet := func() (theirs *tls.Conn, ours *Conn) {
			theirs = tls.Client(s.net.dial(), anonymous.DialNode("n2"))
			wg.Go(func() { _ = theirs.Handshake() })
			c, err := s.l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return theirs, c.(*Conn)
		}
		ended := func(c *Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err)
		}
		_, leaves := meet()
		_, stays := meet()
		_, hour := meet()
		if err := errors.Join(stays.Stay(Peer{}, time.Time{}), hour.Stay(Peer{}, time.Now().Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		for name, c := range map[string]*Conn{"anonymous": leaves, "authenticated": stays, "authenticated for an hour": hour} {
			if ended(c) {
				t.Errorf("after 59 s the connection of %s has ended", name)
			}
		}
		time.Sleep(2 * time.Second)
		if !ended(leaves) || ended(stays) || ended(hour) {
			t.Error("after a minute: want only the anonymous connection closed")
		}
		time.Sleep(time.Hour)
		if ended(stays) || !ended(hour) {
			t.Error("after an hour: want only the connection with that limit closed")
		}
		_, first := meet()
		for range 2 {
			meet()
		}
		if ended(first) {
			t.Error("three are too many: authenticated connections are counted")
		}
		_, fourth := meet()
		if !ended(first) || ended(fourth) {
			t.Error("the oldest was not the one closed")
		}
		_ = s.l.Close()
		s.client.Disconnect(func(Peer) bool { return true })
		wg.Wait()
		time.Sleep(time.Minute)
	})
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// listening returns a stage with that endpoint over a real network.
func listening(t testing.TB, e *Endpoint) *stage {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{peers: make(chan Peer, 10)}
	s.l = Listen(inner, ListenerConfig{Endpoint: e, Refused: s.refused.add})
	return s
}

// TestSever: K9. A peer that is refused loses its connections in both directions and gets no new
// ones; others keep theirs.
func TestSever(t *testing.T) {
	a := newAuthorityT(t, "c1")
	clock := at(epoch)
	var gone atomic.Bool
	refuse := func(p Peer) error {
		if gone.Load() && p.Name == "n2" {
			return errors.New("it was removed")
		}
		return nil
	}
	ours := NewEndpoint(nodeCredential(t, a, "n1", epoch), Options{Now: clock.Now, Refuse: refuse})
	theirs := NewEndpoint(nodeCredential(t, a, "n2", epoch), clock)
	s, s2 := listening(t, ours), listening(t, theirs)
	var wg sync.WaitGroup
	wg.Go(func() { s.serve(&wg) })
	wg.Go(func() { s2.serve(&wg) })
	defer wg.Wait()
	defer s.l.Close()
	defer s2.l.Close()
	dial := func(e *Endpoint, to *Listener) net.Conn {
		c, err := e.Dial(t.Context(), "", to.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := swapByte(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	other := NewEndpoint(nodeCredential(t, a, "n3", epoch), clock)
	from, to, third := dial(theirs, s.l), dial(ours, s2.l), dial(other, s.l)
	defer from.Close()
	defer to.Close()
	defer third.Close()
	gone.Store(true)
	if n := ours.Disconnect(func(p Peer) bool { return p.Name == "n2" }); n != 2 {
		t.Errorf("%d connections were ended, want one from it and one to it", n)
	}
	for what, c := range map[string]net.Conn{"from it": from, "to it": to} {
		if err := swapByte(c); err == nil {
			t.Errorf("the connection %s stays open", what)
		}
	}
	if err := swapByte(third); err != nil {
		t.Errorf("that of another node: %v", err)
	}
	if c, err := theirs.Dial(t.Context(), "", s.l.Addr().String()); err == nil {
		if swapByte(c) == nil {
			t.Error("it gets another connection")
		}
		c.Close()
	}
	if c, err := theirs.Dial(t.Context(), "", s.l.Addr().String()); err != nil {
		t.Error(err)
	} else {
		if err := swapByte(c); !IsAlert(err) {
			t.Errorf("wrong reason: %v", err)
		}
		c.Close()
	}
	if _, err := ours.Dial(t.Context(), "", s2.l.Addr().String()); !errors.Is(err, ErrRefused) {
		t.Errorf("a connection to it: %v", err)
	}
}

// TestConnectionsOfPrincipal: K10. A principal has a bounded number of connections over its
// certificates and tokens. Other principals and nodes are not affected.
func TestConnectionsOfPrincipal(t *testing.T) {
	a := newAuthorityT(t, "c1")
	now, clock := epoch, at(epoch)
	ours := NewEndpoint(nodeCredential(t, a, "n1", now), Options{Now: clock.Now, PrincipalConnsMax: 2})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused refusals
	l := Listen(inner, ListenerConfig{Endpoint: ours, Refused: refused.add})
	defer l.Close()
	// meet connects and returns the server's end, or nil if it was rejected.
	meet := func(c *Credential) *Conn {
		t.Helper()
		n := len(refused.all())
		theirs, err := NewEndpoint(c, clock).Dial(t.Context(), "", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { theirs.Close() })
		got := make(chan *Conn, 1)
		go func() {
			if c, err := l.Accept(); err == nil {
				got <- c.(*Conn)
			}
		}()
		for {
			select {
			case c := <-got:
				t.Cleanup(func() { c.Close() })
				return c
			case <-time.After(time.Millisecond):
				if all := refused.all(); len(all) > n {
					var many *ManyConnsError
					if !errors.As(all[n], &many) || many.Name != "ann" || many.Max != 2 {
						t.Errorf("refused: %v", all[n])
					}
					// A pending meet is given a connection that is not counted.
					spare, err := NewEndpoint(nodeCredential(t, a, "n9", now), clock).Dial(t.Context(), "", l.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					_ = spare.Close()
					_ = (<-got).Close()
					return nil
				}
			}
		}
	}
	ann, bob, nobody := principalCredential(t, a, "ann", now), principalCredential(t, a, "bob", now), AnonymousCredential(trustIn(t, a))
	as := Peer{Kind: Principal, Name: "ann"}
	first, stranger := meet(ann), meet(nobody)
	if err := errors.Join(stranger.Stay(as, time.Time{}), stranger.Stay(as, time.Time{})); err != nil {
		t.Errorf("the second connection: %v", err)
	}
	if meet(ann) != nil {
		t.Error("a third connection was accepted")
	}
	var many *ManyConnsError
	third := meet(nobody)
	if err := third.Stay(as, time.Time{}); !errors.As(err, &many) {
		t.Errorf("a third connection, by a token: %v", err)
	}
	if meet(bob) == nil || meet(nodeCredential(t, a, "n2", now)) == nil || meet(nodeCredential(t, a, "n2", now)) == nil || meet(nodeCredential(t, a, "n2", now)) == nil {
		t.Error("others are refused")
	}
	_ = first.Close()
	_ = first.Close()
	if err := third.Stay(as, time.Time{}); err != nil {
		t.Errorf("once one has gone: %v", err)
	}
	if meet(ann) != nil {
		t.Error("a connection closed twice is subtracted twice")
	}
	gone := meet(nobody)
	_ = gone.Close()
	if err := gone.Stay(Peer{Kind: Principal, Name: "eve"}, now.Add(time.Hour)); err != nil {
		t.Errorf("of one that is closed: %v", err)
	}
	if gone.end.Stop() {
		t.Error("a timer retains a closed connection")
	}
	if n := ours.Disconnect(func(p Peer) bool { return p.Name == "ann" }); n != 2 {
		t.Errorf("%d connections of hers were ended, want 2", n)
	}
}

// TestPlaintextGetsAlert: a peer that does not speak TLS gets an alert.
func TestPlaintextGetsAlert(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthorityT(t, "c1")
	l := Listen(inner, ListenerConfig{Endpoint: NewEndpoint(nodeCredential(t, a, "n1", time.Now()), Options{})})
	defer l.Close()
	for _, said := range []string{"STELE\x01\x00\n", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", strings.Repeat("x", 30_000)} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(c, said); err != nil {
			t.Error(err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); err != nil || len(got) != 7 || got[0] != 0x15 {
			t.Errorf("to %.10q: % x, %v", said, got, err)
		}
		c.Close()
	}
}

// TestDial uses a real network.
func TestDial(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthorityT(t, "c1")
	clock := at(epoch)
	s := &stage{peers: make(chan Peer, 10)}
	s.l = Listen(inner, ListenerConfig{Endpoint: NewEndpoint(nodeCredential(t, a, "n1", epoch), clock), Refused: s.refused.add})
	var wg sync.WaitGroup
	wg.Go(func() { s.serve(&wg) })
	defer wg.Wait()
	defer s.l.Close()
	addr := s.l.Addr().String()
	e := NewEndpoint(nodeCredential(t, a, "n2", epoch), clock)
	for _, id := range []string{"", "n1"} {
		c, err := e.Dial(t.Context(), id, addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := swapByte(c); err != nil || c.(*Conn).Peer.Name != "n1" {
			t.Errorf("node %q: %v, %v", id, c.(*Conn).Peer, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if p := <-s.peers; p.Name != "n2" {
			t.Errorf("the node sees %v", p)
		}
		if c.(*Conn).end.Stop() {
			t.Error("the certificate's end is waited for, though the connection is closed")
		}
	}
	if _, err := e.Dial(t.Context(), "n3", addr); !errors.Is(err, ErrOtherNode) {
		t.Errorf("node n3: %v", err)
	}
	other := NewEndpoint(nodeCredential(t, newAuthorityT(t, "c2"), "n2", epoch), clock)
	if _, err := other.Dial(t.Context(), "", addr); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("from another cluster: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := e.Dial(ctx, "", silent.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a server that is silent: %v", err)
	}
}
