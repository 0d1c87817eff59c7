package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/rpc"
)

// mutedConn is a connection to a node that is stopped while it is muted: it accepts requests and
// sends nothing.
type mutedConn struct {
	net.Conn
	muted atomic.Bool
}

func (c *mutedConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.muted.Load() {
			return n, err
		}
	}
}

// Calls without a deadline do not wait for a stopped node: reads are sent again, changes return an
// unknown outcome.
func TestStoppedNode(t *testing.T) {
	f := newFake(t)
	var last atomic.Pointer[mutedConn]
	c, err := Open(t.Context(), f.addr, Config{
		SilenceMax: 200 * time.Millisecond,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			last.Store(&mutedConn{Conn: conn})
			return last.Load(), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tb := c.Table("t")
	if err := tb.Apply(context.Background(), NewRowMutation("r").Set("f:a", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	last.Load().muted.Store(true)
	row, err := tb.Get(context.Background(), "r")
	if err != nil || row == nil {
		t.Errorf("get: %v, %v", row, err)
	}
	last.Load().muted.Store(true)
	rows := 0
	s := tb.Scan(context.Background())
	for s.Next() {
		rows++
	}
	if s.Err() != nil || rows != 1 {
		t.Errorf("scan: %d rows, %v", rows, s.Err())
	}
	last.Load().muted.Store(true)
	err = tb.Apply(context.Background(), NewRowMutation("r").Set("f:a", []byte("w")))
	if !errors.Is(err, ErrAmbiguous) || !errors.Is(err, rpc.ErrSilent) {
		t.Errorf("apply: %v", err)
	}
}
