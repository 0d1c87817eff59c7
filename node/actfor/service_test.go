package actfor

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// registrar registers the methods of a service with a server.
type registrar struct {
	method.Registrar
	*rpc.Server
}

func (r registrar) Handle(name string, m rpc.Mode, _ authz.Guard, h func(*rpc.Call)) {
	r.Server.Handle(name, m, h)
}

// TestNotPreferred (AF3): a connection of a node that acts for a user does not use what is reserved for nodes.
func TestNotPreferred(t *testing.T) {
	srv, err := rpc.NewServer(rpc.ServerConfig{
		ConnsMax: 2, ReservedConns: 1,
		Identify:  func(net.Conn) any { return &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n1"}} },
		Preferred: func(*rpc.Peer) bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	Service{}.Register(registrar{Server: srv})
	ann := ann
	ann.TokenID = ""
	act := func() error {
		conn, err := client.Config{Dial: func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			srv.ServeConn(there)
			return here, nil
		}}.Connect(t.Context(), "node:1")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		return ann.prepare(t.Context(), conn)
	}
	if err := act(); err != nil {
		t.Errorf("the connection that is not reserved: %v", err)
	}
	if err := act(); !errors.Is(err, api.ErrOverloaded) {
		t.Errorf("the connection that is reserved for nodes: %v, want %v", err, api.ErrOverloaded)
	}
}
