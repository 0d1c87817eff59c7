package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/actfor"
	"github.com/steledb/stele/rpc"
)

// TestActFor (AF1): only a node may act for a user on a connection, for one, and has the rights of that user from then on.
func TestActFor(t *testing.T) {
	t.Parallel()
	f, first, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	act := func(c *rpc.Conn, name string) error {
		return api.FromRPC(c.Call(ctx, actfor.Method, func(e *wire.Encoder) {
			e.Array(5)
			e.Str(name)
			e.Uint(0)
			for range 3 {
				e.Str("")
			}
		}, nil))
	}
	connect := func(cfg client.Config) *rpc.Conn {
		t.Helper()
		c, err := cfg.Connect(ctx, f.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	if err := act(connect(client.Config{Credential: f.as}), "admin"); !errors.Is(err, api.ErrPermission) {
		t.Errorf("a user acts for itself: %v, want %v", err, api.ErrPermission)
	}
	c := connect(client.Config{Credential: first.Credential})
	list := func() error {
		return api.FromRPC(c.Call(ctx, "tablet.held", func(e *wire.Encoder) { e.Array(0) }, nil))
	}
	if err := list(); errors.Is(err, api.ErrPermission) {
		t.Errorf("a node: %v", err)
	}
	if err := act(c, "eve"); err != nil {
		t.Fatal(err)
	}
	if err := list(); !errors.Is(err, api.ErrPermission) {
		t.Errorf("a method of nodes for a user: %v, want %v", err, api.ErrPermission)
	}
	if err := api.FromRPC(c.Call(ctx, api.MethodListNodes, func(e *wire.Encoder) { e.Array(0) }, nil)); !errors.Is(err, api.ErrUnauthenticated) {
		t.Errorf("a user that does not exist: %v, want %v", err, api.ErrUnauthenticated)
	}
	if err := act(c, "admin"); !errors.Is(err, api.ErrPermission) {
		t.Errorf("a connection that acts for a user acts for another: %v, want %v", err, api.ErrPermission)
	}
}
