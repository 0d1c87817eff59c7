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

// Server answers methods in the process of a test, without a port. Each of its connections has the identity that the test gives it. It may
// be used in a bubble of testing/synctest.
type Server struct{ srv *rpc.Server }

// connection is a server's end of a connection with an identity.
type connection struct {
	net.Conn
	identity any
}

// Serve serves methods until the test ends.
func Serve(t testing.TB, cfg rpc.ServerConfig, methods map[string]func(*rpc.Call)) *Server {
	t.Helper()
	return Start(t, cfg, func(srv *rpc.Server) {
		for name, h := range methods {
			srv.Handle(name, rpc.Spawned, h)
		}
	})
}

// Start serves the methods that register registers, until the test ends.
func Start(t testing.TB, cfg rpc.ServerConfig, register func(*rpc.Server)) *Server {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Identify = func(c net.Conn) any { return c.(connection).identity }
	srv, err := rpc.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	register(srv)
	t.Cleanup(srv.Close)
	return &Server{srv}
}

// Connect returns the client's end of a new connection of a caller with that identity, nil for none.
func (s *Server) Connect(identity any) net.Conn {
	client, server := net.Pipe()
	s.srv.ServeConn(connection{server, identity})
	return client
}

// Dial opens a connection of a caller with that identity, nil for none.
func (s *Server) Dial(ctx context.Context, identity any) (*rpc.Conn, error) {
	return rpc.NewConn(ctx, s.Connect(identity), rpc.ConnConfig{})
}

// Call makes a call as a caller with that identity, nil for none.
func (s *Server) Call(t testing.TB, identity any, method string, params func(*wire.Encoder)) error {
	t.Helper()
	return s.Ask(t, identity, method, params, nil)
}

// Ask is Call for a call whose result is decoded.
func (s *Server) Ask(t testing.TB, identity any, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error {
	t.Helper()
	conn, err := s.Dial(t.Context(), identity)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	return conn.Call(ctx, method, params, result)
}

// callTime bounds a call.
const callTime = time.Minute

// Values encodes parameters.
func Values(params ...any) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Array(len(params))
		for _, p := range params {
			wiretest.Any(e, p)
		}
	}
}
