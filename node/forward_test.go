package node

import (
	"net"
	"testing"

	"github.com/steledb/stele/rpc"
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
