package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// jammer makes connections of which the first to each address can be blocked.
type jammer struct {
	sync.Mutex
	dials map[string]int
	one   bool          // further connections to an address fail
	jam   chan struct{} // not nil: writes block until it is closed
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
	j.Lock()
	defer j.Unlock()
	j.dials[addr]++
	first := j.dials[addr] == 1
	if !first && j.one {
		return nil, syscall.ECONNREFUSED
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if first && err == nil {
		conn = &jammedConn{conn, j}
	}
	return conn, err
}

// Lookups do not wait behind large requests. Otherwise the first calls for uncached rows would all
// fail in a client that writes as fast as a node accepts. Without large requests there is one
// connection. If a node accepts no other, lookups use that one.
func TestLookupsDoNotWaitForLargeWrites(t *testing.T) {
	for _, one := range []bool{false, true} {
		t.Run(fmt.Sprint("one connection is ", one), func(t *testing.T) { testLookupBehindWrites(t, one) })
	}
}

func testLookupBehindWrites(t *testing.T, one bool) {
	f := newFakeCluster(newFake(t), 3)
	f.layout(metadata.Name, []string{string(metadata.RootEnd())}, 0, 2)
	j := &jammer{dials: map[string]int{}, one: one}
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
	for conn := c.pool.node(addr).slots[0].conn.Load(); !conn.Behind() && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	over := sync.OnceFunc(func() { close(jam) })
	if one {
		time.AfterFunc(100*time.Millisecond, over)
	}
	if _, err := c.locator.locate(ctx, "t", []byte("a")); err != nil {
		t.Errorf("a lookup while large requests wait to be sent: %v", err)
	}
	over()
	writes.Wait()
	j.Lock()
	defer j.Unlock()
	if n := j.dials[addr]; n != 2 {
		t.Errorf("%d connections to the server were tried, want 2", n)
	}
}
