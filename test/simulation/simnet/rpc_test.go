package simnet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// TestRPC runs servers and clients of package rpc over bad links, with kills and cuts.
func TestRPC(t *testing.T) {
	link := Link{Delay: 100 * time.Microsecond, Jitter: time.Millisecond, Loss: 0.01, Bandwidth: 100 << 20}
	inWorld(t, Config{Link: link}, func(t *testing.T, w *world) {
		server := serveEcho(t, w.listener)
		cfg := rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) { return w.a.Dial(ctx, addr) }}
		c, err := rpc.Dial(t.Context(), "10.0.0.2:7000", cfg)
		if err != nil {
			t.Fatal(err)
		}
		var tasks sync.WaitGroup
		for i := range 8 {
			tasks.Go(func() {
				for size := range 100 {
					if err := echo(c, bytes.Repeat([]byte{byte(i)}, size*size*10)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		tasks.Wait()
		w.Cut(w.a, w.b)
		time.AfterFunc(3*time.Second, func() { w.Heal(w.a, w.b) })
		if err := echo(c, []byte("late")); err != nil {
			t.Errorf("call in a short cut: %v", err)
		}
		w.b.Kill(true)
		start := time.Now()
		if err := echo(c, []byte("never")); err == nil {
			t.Error("call of a server without power succeeded")
		}
		w.took(start, time.Second, 20*time.Second)
		server()
		_ = c.Close()
	})
}

// serveEcho serves a method that returns its argument.
func serveEcho(t *testing.T, l net.Listener) (stop func()) {
	server, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	server.Handle("echo", rpc.Inline, func(c *rpc.Call) {
		b := c.Params.Bytes()
		c.Reply(func(e *wire.Encoder) { e.Bin(b) })
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return func() {
		server.Close()
		<-served
	}
}

func echo(c *rpc.Conn, want []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got []byte
	err := c.Call(ctx, "echo", func(e *wire.Encoder) { e.Array(1); e.Bin(want) }, func(d *wire.Decoder) error {
		got = bytes.Clone(d.Bytes())
		return d.Err()
	})
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the answer differs")
	}
	return err
}
