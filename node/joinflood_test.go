package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// strangerFrom connects by TLS without a certificate, from an address of loopback.
func (f *testCluster) strangerFrom(ctx context.Context, from, addr string) (*rpc.Conn, error) {
	return rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}, NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}}
		return d.DialContext(ctx, "tcp", addr)
	}})
}

// joinOnce sends one request to join, without a retry.
func joinOnce(ctx context.Context, c *rpc.Conn, text string, j joiner, request []byte, claim string) error {
	return c.Call(ctx, "security.join", func(e *wire.Encoder) {
		e.Array(5)
		e.Str(text)
		e.Bin(request)
		e.Str(j.node)
		e.Array(0)
		e.Str(claim)
	}, func(d *wire.Decoder) error { d.Skip(); return d.Err() })
}

// TestJunkTokensDelayNoOtherHost: while one host sends junk join tokens to the master's node and to another one as fast as it can,
// and claims to be another host, each request of that other host is accepted at its first try, through either node.
func TestJunkTokensDelayNoOtherHost(t *testing.T) {
	t.Parallel()
	f, _ := tokenTestCluster(t, 2)
	f.give(f.token(client.TokenRequest{}).Text, 1)
	f.start(1)
	eventually(t, "the first node is the master", func() bool { return f.nodes[0].IsMaster() })
	ctx := within(t, 60*time.Second)
	made := f.token(client.TokenRequest{Uses: 21})
	first, via := newJoiner("nfirst"), good(f.strangerFrom(ctx, "127.0.0.1", f.addrs[1]))
	defer via.Close()
	eventually(t, "the other node passes requests on to the master", func() bool {
		return joinOnce(ctx, via, made.Text, first, good(pki.NewRequest(first.key)), "") == nil
	})

	junk := token.New(token.Join, pki.Fingerprint{}, time.Now(), time.Hour).Reveal()
	flooding, end := context.WithCancel(ctx)
	var refused, waits atomic.Int64
	var floods sync.WaitGroup
	defer floods.Wait()
	defer end()
	for i := range 6 {
		c := good(f.strangerFrom(ctx, "127.0.0.9", f.addrs[i%2]))
		j := newJoiner("nbad")
		request := good(pki.NewRequest(j.key))
		floods.Go(func() {
			defer c.Close()
			for flooding.Err() == nil {
				switch err := joinOnce(flooding, c, junk, j, request, "127.0.0.1:1"); {
				case errors.Is(err, api.CodeTokenRefused):
					refused.Add(1)
				case errors.Is(err, rpc.CodeOverloaded):
					waits.Add(1)
				default:
					if flooding.Err() == nil {
						t.Errorf("a junk token: %v", err)
					}
					return
				}
			}
		})
	}
	eventually(t, "the host of junk tokens has to wait", func() bool { return waits.Load() > 0 })
	for i := range 20 {
		before := waits.Load()
		c := good(f.strangerFrom(ctx, "127.0.0.1", f.addrs[i%2]))
		j := newJoiner("nhost" + string(rune('a'+i)))
		if err := joinOnce(ctx, c, made.Text, j, good(pki.NewRequest(j.key)), ""); err != nil {
			t.Errorf("request %d of another host, to node %d: %v", i, i%2, err)
		}
		c.Close()
		eventually(t, "junk tokens go on", func() bool { return waits.Load() > before })
	}
	if refused.Load() == 0 {
		t.Error("no junk token was looked at")
	}
}

// TestHostsBehindOneAddressJoin: twenty hosts with one address, such as that of a NAT, join at once through two nodes. Each waits between its
// tries as a starting node does. None is rejected for good, and all have joined soon.
func TestHostsBehindOneAddressJoin(t *testing.T) {
	t.Parallel()
	f, _ := tokenTestCluster(t, 2)
	f.give(f.token(client.TokenRequest{}).Text, 1)
	f.start(1)
	eventually(t, "the first node is the master", func() bool { return f.nodes[0].IsMaster() })
	ctx := within(t, 60*time.Second)
	made := f.token(client.TokenRequest{Uses: 20})
	var hosts sync.WaitGroup
	began := time.Now()
	for i := range 20 {
		hosts.Go(func() {
			j := newJoiner("nhost" + string(rune('a'+i)))
			request := good(pki.NewRequest(j.key))
			for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
				for k := range 2 {
					c := good(f.strangerFrom(ctx, "127.0.0.7", f.addrs[(i+k)%2]))
					err := joinOnce(ctx, c, made.Text, j, request, "")
					c.Close()
					if err == nil {
						return
					}
					if !errors.Is(err, rpc.CodeOverloaded) && !errors.Is(err, rpc.CodeUnavailable) {
						t.Errorf("host %d: %v", i, err)
						return
					}
				}
				time.Sleep(wait)
			}
		})
	}
	hosts.Wait()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the hosts have joined after %v", took)
	}
}
