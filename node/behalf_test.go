package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// serving answers methods on a port of loopback, and returns its address.
func serving(t *testing.T, methods map[string]func(*rpc.Call)) string {
	t.Helper()
	s, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for m, h := range methods {
		s.Handle(m, rpc.Spawned, h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return l.Addr().String()
}

// TestOlderMaster: what the master's node does not know, since it runs an older version, is unavailable until it is upgraded: for
// users' requests that are passed on, and for what nodes ask the master themselves.
func TestOlderMaster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	refused := "cluster.on_behalf: \"new\" is not passed on"
	for what, answer := range map[string]func(c *rpc.Call){
		"of before":                  func(c *rpc.Call) { c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s", refused)) },
		"that says so":               func(c *rpc.Call) { c.Fail(rpc.Errorf(rpc.CodeUnknownMethod, "%s", refused)) },
		"that passes on nothing yet": nil,
	} {
		old := map[string]func(*rpc.Call){}
		if answer != nil {
			old[methodOnBehalf] = answer
		}
		addr := serving(t, old)
		n := &Node{master: master.New(master.Config{})}
		folders := &identity.Folders{}
		folders.Node = "n1"
		n.self.open(folders)
		n.epochs.mu.master = "n2"
		n.peers.resolve = func(id string) (string, bool) { return addr, id == "n2" }
		n.peers.dial = func(ctx context.Context, _ string) (*rpc.Conn, error) { return rpc.Dial(ctx, addr, rpc.ConnConfig{}) }
		defer n.peers.close()
		own := serving(t, map[string]func(*rpc.Call){"new": func(c *rpc.Call) {
			n.passOn(c, "new", &subject{peer: pki.Peer{Kind: pki.Principal, Name: "ann"}}, nil)
		}})
		conn, err := rpc.Dial(ctx, own, rpc.ConnConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		older := func(by string, err error) {
			t.Helper()
			if err = api.FromRPC(err); !errors.Is(err, api.ErrUnavailable) || !strings.Contains(err.Error(), "older version") || !strings.Contains(err.Error(), "try again when all nodes are upgraded") {
				t.Errorf("%s, by a master %s: %v", by, what, err)
			}
		}
		older("passed on", conn.Call(ctx, "new", func(e *wire.Encoder) { e.Array(0) }, nil))
		older("a tablet is moved", n.askMaster(ctx, &request{method: methodMove}))
		_, err = n.unservedTablets(ctx, nil)
		older("tablets that are not served", err)
	}
	plain := rpc.Errorf(rpc.CodeBadRequest, "create_table: no name")
	if err := orOlder("n2", "create_table", plain); !errors.Is(err, plain) {
		t.Errorf("what the request is refused for: %v", err)
	}
}
