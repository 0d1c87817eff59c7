package actfor

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ann, bob = Principal{Name: "ann", TokenID: "1", From: "h:1"}, Principal{Name: "bob", Serial: "2", From: "h:1"}

// server is a node that admits principals but bob.
type server struct {
	acts  atomic.Int32
	conns chan net.Conn
}

// start starts the node in the bubble of a test, and returns clients of it.
func start(t *testing.T, most int) (*server, *Clients) {
	t.Helper()
	s := &server{conns: make(chan net.Conn)}
	srv, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	srv.Handle(Method, rpc.Inline, func(c *rpc.Call) {
		if name := c.Params.Str(); name == bob.Name {
			c.Fail(api.ToRPC(&api.IdentityError{Reason: api.IdentityDisabled, Text: "disabled"}))
			return
		}
		s.acts.Add(1)
		c.Reply(nil)
	})
	l := &listener{conns: s.conns, closed: make(chan struct{})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }()
	clients := NewClients(Config{Addr: "node:1", Max: most, Client: client.Config{Dial: func(context.Context, string) (net.Conn, error) {
		here, there := net.Pipe()
		s.conns <- there
		return here, nil
	}}})
	t.Cleanup(func() {
		clients.Close()
		srv.Close()
		<-ended
	})
	return s, clients
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

func hold(t *testing.T, c *Clients, p Principal) (*client.Client, func()) {
	t.Helper()
	got, release, err := c.Hold(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return got, release
}

// TestClients: a principal has one client, which states its name first, and which is closed a while after it was held last.
func TestClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := start(t, 10)
		first, release := hold(t, c, ann)
		second, releaseSecond := hold(t, c, ann)
		if first != second || s.acts.Load() != 1 {
			t.Errorf("%d connections, want 1, of one client", s.acts.Load())
		}
		if other, r := hold(t, c, Principal{Name: "ann", TokenID: "3", From: "h:1"}); other == first || s.acts.Load() != 2 {
			t.Error("another credential has the same client")
		} else {
			r()
		}
		if open, r := hold(t, c, Principal{}); open == first || s.acts.Load() != 2 {
			t.Error("an open node states a principal")
		} else {
			r()
		}
		release()
		release() // has no effect
		time.Sleep(2 * idleTime)
		if third, r := hold(t, c, ann); third != first {
			t.Error("a client that is held was closed")
		} else {
			r()
		}
		releaseSecond()
		time.Sleep(idleTime / 2)
		if third, r := hold(t, c, ann); third != first {
			t.Error("a client was closed at once")
		} else {
			r()
		}
		time.Sleep(2 * idleTime)
		if third, r := hold(t, c, ann); third == first || s.acts.Load() != 3 {
			t.Error("an idle client was not closed")
		} else {
			r()
		}
	})
}

// TestClientsRejected: a principal that the node does not admit gets the node's error, each time anew.
func TestClientsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := start(t, 1)
		for range 3 {
			if _, _, err := c.Hold(t.Context(), bob); !errors.Is(err, api.ErrUnauthenticated) {
				t.Errorf("%v, want %v", err, api.ErrUnauthenticated)
			}
		}
	})
}

// TestClientsMax: the number of clients is bounded; idle ones give way.
func TestClientsMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := start(t, 1)
		_, release := hold(t, c, ann)
		carl := Principal{Name: "carl"}
		if _, _, err := c.Hold(t.Context(), carl); !errors.Is(err, api.ErrOverloaded) {
			t.Errorf("%v, want %v", err, api.ErrOverloaded)
		}
		release()
		_, release = hold(t, c, carl)
		defer release()
		c.Close()
		if _, _, err := c.Hold(t.Context(), ann); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%v, want %v", err, client.ErrClosed)
		}
	})
}
