package dialer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/dispatch"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a port of loopback until the test ends, and returns its address. onConns is that of the server.
func serve(t *testing.T, transport *certs.Transport, register func(*rpc.Server), onConns func(int)) string {
	t.Helper()
	cfg := transport.Limit(rpc.ServerConfig{Logger: slog.New(slog.DiscardHandler), OnConns: onConns})
	srv, err := rpc.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	register(srv)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(transport.Guard(l, 0, func(net.Addr, error) {}))
	}()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	return addr
}

// identity returns what registers the dialer's method for a node of that id and cluster.
func identity(id, cluster string, open bool) func(*rpc.Server) {
	return func(srv *rpc.Server) {
		d := New(Config{ID: func() string { return id }, Cluster: func() string { return cluster }})
		d.Register(dispatch.New(dispatch.Config{Authz: &authz.Authorizer{Open: open}}, srv).Early())
	}
}

// dialerTo returns the dialer of the node n1 of the cluster c1, for nodes at these addresses.
func dialerTo(transport *certs.Transport, addresses map[string]string) *Dialer {
	return New(Config{
		ID: func() string { return "n1" }, Cluster: func() string { return "c1" }, Connect: transport.DialNode,
		AddressOf: func(node string) (string, bool) { addr, known := addresses[node]; return addr, known },
	})
}

// TestIdentity: a connection is returned only if the node at the address has the requested id and is of this cluster. Any other one is
// closed.
func TestIdentity(t *testing.T) {
	changes := make(chan int, 100) // of the number of connections
	onConns := func(change int) { changes <- change }
	addresses := map[string]string{
		"n2": serve(t, nil, identity("n2", "c1", true), onConns),
		"n3": serve(t, nil, identity("n4", "c1", true), onConns), // replaced by another node
		"n5": serve(t, nil, identity("n5", "c2", true), onConns),
		"n6": serve(t, nil, func(*rpc.Server) {}, onConns), // no node
		"n7": serve(t, nil, func(srv *rpc.Server) {
			srv.Handle(Method, rpc.Inline, func(c *rpc.Call) { c.Fail(rpc.CodeOverloaded) })
		}, onConns),
		"n8": serve(t, nil, func(srv *rpc.Server) {
			srv.Handle(Method, rpc.Inline, func(c *rpc.Call) { c.Reply(authztest.Values(7, "n8")) })
		}, onConns),
	}
	d := dialerTo(nil, addresses)
	for id, want := range map[string]string{
		"n2": "", "n3": `is n4 of cluster "c1", want n3`, "n5": `is n5 of cluster "c2", want n5`, "n6": "identify the node at", "n7": "identify the node at",
		"n8": "identify the node at", "n9": "address of node n9 is unknown",
	} {
		conn, err := d.Dial(t.Context(), id)
		switch {
		case want != "" && (err == nil || conn != nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", id, err, want)
		case want == "" && (err != nil || conn.RemoteAddr().String() != addresses[id] || conn.Err() != nil):
			t.Fatalf("%s: %v", id, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		if addresses[id] != "" && <-changes+<-changes != 0 {
			t.Errorf("%s: two connections", id)
		}
	}
}

// TestUnreachable: the error of a node that does not answer has its id and address, and the cause, which is ctx's if that ends.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	d := dialerTo(nil, map[string]string{"silent": l.Addr().String(), "gone": gone.Addr().String()})
	if _, err := d.Dial(t.Context(), "gone"); err == nil || !strings.Contains(err.Error(), "connect to node gone at "+gone.Addr().String()) {
		t.Errorf("no listener: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Dial(ctx, "silent"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a listener that does not answer: %v", err)
	}
}

// transportOf returns the transport of a node of that cluster, whose certificate a signs. It rejects the node removed.
func transportOf(t *testing.T, a *pki.Authority, id, removed string) *certs.Transport {
	t.Helper()
	credential := authztest.NodeCredential(t, a, id)
	return certs.New(certs.Config{Log: slog.New(slog.DiscardHandler), Credential: credential, ForStrangers: func(string) bool { return false }, Rejected: func(id string) error {
		if id == removed {
			return errors.New("the node was removed")
		}
		return nil
	}})
}

// TestCertificates: in a cluster with certificates a connection is returned only if the certificate of the node at the address, too, has the
// requested id, and is of this cluster.
func TestCertificates(t *testing.T) {
	ours, others := authztest.NewAuthority(t, "c1"), authztest.NewAuthority(t, "c1")
	d := dialerTo(transportOf(t, ours, "n1", "n6"), map[string]string{
		"n2": serve(t, transportOf(t, ours, "n2", ""), identity("n2", "c1", false), nil),
		"n3": serve(t, transportOf(t, ours, "n4", ""), identity("n3", "c1", false), nil), // pretends to be n3
		"n5": serve(t, transportOf(t, others, "n5", ""), identity("n5", "c1", false), nil),
		"n6": serve(t, transportOf(t, ours, "n6", ""), identity("n6", "c1", false), nil),
		"n7": serve(t, nil, identity("n7", "c1", true), nil), // open
	})
	for _, id := range []string{"n2", "n3", "n5", "n6", "n7"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		conn, err := d.Dial(ctx, id)
		if (err == nil) != (id == "n2") {
			t.Errorf("%s: %v", id, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		cancel()
	}
}
