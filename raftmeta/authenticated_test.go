package raftmeta

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// authenticatedConn is a connection with an authenticated peer.
type authenticatedConn struct {
	net.Conn
	server string
}

func (c *authenticatedConn) Server() string { return c.server }

// TestHelloIsBound: an authenticated server cannot claim the id of another; an unauthenticated one
// can claim any id.
func TestHelloIsBound(t *testing.T) {
	for name, test := range map[string]struct {
		far   func(net.Conn) net.Conn
		taken bool
	}{
		"proved to be another": {func(c net.Conn) net.Conn { return &authenticatedConn{c, "n3"} }, false},
		"proved":               {func(c net.Conn) net.Conn { return &authenticatedConn{c, "n2"} }, true},
		"nothing is proved":    {func(c net.Conn) net.Conn { return c }, true},
	} {
		var log strings.Builder
		tr := newTransport("n1", nil, slog.New(slog.NewTextHandler(&log, nil)), nil)
		lost := ""
		tr.connLost = func(from string) { lost = from }
		near, far := net.Pipe()
		c := test.far(far)
		if !tr.register(c, true) {
			t.Fatal("not kept")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			tr.serveConn(c)
		}()
		_ = near.SetDeadline(time.Now().Add(5 * time.Second))
		f := newFrames(near)
		e := wire.GetEncoder()
		encodeHello(e, "n2", "n1")
		if err := f.send(e); err != nil {
			t.Fatal(err)
		}
		e.Release()
		if !test.taken {
			if _, err := f.recv(nil); err != nil {
				t.Errorf("%s: no answer: %v", name, err)
			}
			if _, err := f.recv(nil); !errors.Is(err, io.EOF) {
				t.Errorf("%s: the connection goes on: %v", name, err)
			}
		}
		near.Close()
		<-done
		if refused := strings.Contains(log.String(), "server n3 claims to be server"); refused == test.taken || (lost == "n2") != test.taken {
			t.Errorf("%s: the log says %q, and lost is %q", name, log.String(), lost)
		}
	}
}
