package rpc

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"weak"
)

// TestClosedConnsAreFreed: the garbage collection after the end of a connection frees it and its buffers, so that a program that opens many
// connections does not keep those of two collections.
func TestClosedConnsAreFreed(t *testing.T) {
	const conns, leftMax = 100, 10                   // the last ones may still be on a stack
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection but the one below
	s := newTestServer(t, ServerConfig{})
	var ended []weak.Pointer[Conn]
	for range conns {
		ended = append(ended, useOnce(t, s.addr))
	}
	runtime.GC()
	left := 0
	for _, p := range ended {
		if p.Value() != nil {
			left++
		}
	}
	if left > leftMax {
		t.Errorf("%d of %d closed connections were not freed", left, conns)
	}
}

// useOnce makes one call on a connection and closes it.
func useOnce(t *testing.T, addr string) weak.Pointer[Conn] {
	c, err := Dial(context.Background(), addr, ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Call(context.Background(), "echo", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return weak.Make(c)
}
