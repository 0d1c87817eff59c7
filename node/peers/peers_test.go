package peers

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
)

// A node that cannot be connected to has executed nothing: the caller may ask again, and gets no
// internal error.
func TestUnreachableIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	p := Set{
		Resolve: func(string) (string, bool) { return addr, true },
		Dial: func(ctx context.Context, id string) (*rpc.Conn, error) {
			return rpc.Dial(ctx, addr, rpc.ConnConfig{})
		},
	}
	ask := func(ctx context.Context) error {
		return p.Call(ctx, "n1", "cluster.who", func(e *wire.Encoder) { e.Array(0) }, nil)
	}
	err = ask(t.Context())
	if !errors.Is(err, api.ErrUnavailable) || !errors.Is(api.FromRPC(reply.ToAPI(err)), api.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
	if got := err.Error(); strings.Count(got, addr) != 1 || !strings.Contains(got, "refused") {
		t.Errorf("got %q, want the address once, and why", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(over); !errors.Is(err, context.Canceled) || errors.Is(err, api.ErrUnavailable) {
		t.Errorf("a call that was given up: %v", err)
	}
	p.Resolve = func(string) (string, bool) { return "", false }
	if err := ask(t.Context()); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("a node of unknown address: %v, want unavailable", err)
	}
}
