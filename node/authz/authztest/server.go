package authztest

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
)

// Server answers methods on a port of its own. Each call comes on a connection of its own, with the identity that the test gives.
type Server struct {
	addr       string
	identities chan any // of the next connection
}

// Serve serves methods until the test ends.
func Serve(t testing.TB, cfg rpc.ServerConfig, methods map[string]func(*rpc.Call)) *Server {
	t.Helper()
	s := &Server{identities: make(chan any, 1)}
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Identify = func(net.Conn) any { return <-s.identities }
	srv, err := rpc.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range methods {
		srv.Handle(name, rpc.Spawned, h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l) // until it is closed
	}()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	return s
}

// Call makes a call as a caller with that identity, nil for none.
func (s *Server) Call(t testing.TB, identity any, method string, params func(*wire.Encoder)) error {
	t.Helper()
	s.identities <- identity
	conn, err := rpc.Dial(t.Context(), s.addr, rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return conn.Call(ctx, method, params, nil)
}

// Values encodes parameters.
func Values(params ...any) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Array(len(params))
		for _, p := range params {
			wiretest.Any(e, p)
		}
	}
}
