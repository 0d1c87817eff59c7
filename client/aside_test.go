package client

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// jammer makes connections of which the first to each address can be jammed.
type jammer struct {
	sync.Mutex
	dials map[string]int
	jam   chan struct{} // not nil: jammed until it is closed
}

type jammedConn struct {
	net.Conn
	j *jammer
}

func (c *jammedConn) Write(p []byte) (int, error) {
	c.j.Lock()
	jam := c.j.jam
	c.j.Unlock()
	if jam != nil {
		<-jam
	}
	return c.Conn.Write(p)
}

func (j *jammer) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	j.Lock()
	defer j.Unlock()
	if j.dials[addr]++; err == nil && j.dials[addr] == 1 {
		conn = &jammedConn{conn, j}
	}
	return conn, err
}

// Lookups do not wait behind large requests: else the first calls for rows that are not known yet all
// fail at a client that writes as fast as a node takes it. Without such requests there is one connection.
func TestLookupsDoNotWaitForLargeWrites(t *testing.T) {
	f := newFakeCluster(newFake(t), 3)
	f.layout(metadata.Name, []string{string(metadata.RootEnd())}, 0, 2)
	j := &jammer{dials: map[string]int{}}
	c, err := Open(t.Context(), f.addr, Config{Dial: j.dial})
	check(t, err)
	defer c.Close()
	tb := c.Table("t")
	check(t, tb.Apply(t.Context(), put("m")))
	check(t, tb.Apply(t.Context(), put("k")))
	addr := f.cluster.addrs[2]
	if n := j.dials[addr]; n != 1 {
		t.Fatalf("%d connections to the server, want 1", n)
	}

	jam := make(chan struct{})
	j.Lock()
	j.jam = jam
	j.Unlock()
	var writes sync.WaitGroup
	for range 2 {
		writes.Go(func() {
			if err := tb.Apply(context.Background(), NewRowMutation("n").SetAt("f:a", 1, make([]byte, 1<<20))); err != nil {
				t.Error(err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for conn := c.node(addr).slots[0].conn.Load(); !conn.Behind() && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	if _, err := c.locator.locate(ctx, "t", []byte("a")); err != nil {
		t.Errorf("a lookup while large requests wait to be sent: %v", err)
	}
	close(jam)
	writes.Wait()
	if n := j.dials[addr]; n != 2 {
		t.Errorf("%d connections to the server, want 2", n)
	}
}
