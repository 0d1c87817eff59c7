package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// authority issues credentials of one cluster.
type authority struct {
	t testing.TB
	*pki.Authority
}

func newAuthority(t testing.TB, cluster string) authority {
	a, err := pki.NewAuthority(cluster, time.Now())
	check(t, err)
	return authority{t, a}
}

func (a authority) credential(sign func(request []byte) (*x509.Certificate, error)) *pki.Credential {
	key, err := pki.NewKey()
	check(a.t, err)
	request, err := pki.NewRequest(key)
	check(a.t, err)
	leaf, err := sign(request)
	check(a.t, err)
	trust, err := pki.NewTrust(a.Certificate())
	check(a.t, err)
	c, err := pki.NewCredential(key, leaf, trust)
	check(a.t, err)
	return c
}

func (a authority) node(id string) *pki.Credential {
	return a.credential(func(r []byte) (*x509.Certificate, error) { return a.SignNode(r, id, nil, time.Now()) })
}

func (a authority) principal(name string) *pki.Credential {
	return a.credential(func(r []byte) (*x509.Certificate, error) { return a.SignPrincipal(r, name, 0, 0, time.Now()) })
}

// guarded is a fake that requires TLS and records its callers and their tokens.
type guarded struct {
	addr  string
	mu    sync.Mutex
	peers []pki.Peer
	auth  []string
	no    error // the error of auth
}

func newGuarded(t testing.TB, node *pki.Credential) *guarded {
	f, g := newFake(t), &guarded{}
	srv, err := rpc.NewServer(rpc.ServerConfig{
		Workers: 2, FirstByteTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Identify: func(c net.Conn) any { return c.(*pki.Conn).Peer },
	})
	check(t, err)
	for _, method := range api.Methods() {
		srv.Handle(method, rpc.Pooled, func(c *rpc.Call) {
			g.mu.Lock()
			g.peers = append(g.peers, c.Peer().Identity.(pki.Peer))
			g.mu.Unlock()
			f.handle(c, 0)
		})
	}
	srv.Handle(methodAuth, rpc.Pooled, func(c *rpc.Call) {
		g.mu.Lock()
		g.auth = append(g.auth, c.Params.Str())
		no := g.no
		g.mu.Unlock()
		if no != nil {
			c.Fail(api.ToRPC(no))
			return
		}
		c.Reply(func(e *wire.Encoder) { e.Nil() })
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	g.addr = l.Addr().String()
	served := make(chan error, 1)
	secured := pki.Listen(l, pki.ListenerConfig{Endpoint: pki.NewEndpoint(node, pki.Options{})})
	go func() { served <- srv.Serve(secured) }()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	return g
}

// seen returns the callers and their tokens.
func (g *guarded) seen() ([]pki.Peer, []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peers, g.auth
}

// get opens a client with short timeouts and reads a row.
func get(t testing.TB, addr string, cfg Config) error {
	cfg.RetryTimeMax = -1
	c, err := Open(t.Context(), addr, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Table("t").Get(t.Context(), "r")
	return err
}

// A credential is accepted by nodes of its cluster, with its principal, and other credentials are
// not.
func TestCredential(t *testing.T) {
	ours, others := newAuthority(t, "c1"), newAuthority(t, "c1")
	g := newGuarded(t, ours.node("n1"))
	check(t, get(t, g.addr, Config{Credential: ours.principal("ann")}))
	callers, _ := g.seen()
	if len(callers) == 0 || callers[0].Kind != pki.Principal || callers[0].Name != "ann" {
		t.Fatalf("callers %v, want principal ann", callers)
	}
	for name, cfg := range map[string]Config{"none": {}, "another authority's of the same name": {Credential: others.principal("ann")}} {
		if err := get(t, g.addr, cfg); !errors.Is(err, ErrUnreachable) {
			t.Errorf("credential %s: %v", name, err)
		}
	}
	if again, _ := g.seen(); len(again) != len(callers) {
		t.Errorf("%d requests came from clients without a credential of this cluster", len(again)-len(callers))
	}
}

// A large row, and many concurrent calls, work with TLS as without it.
func TestCredentialCarriesMuch(t *testing.T) {
	a := newAuthority(t, "c1")
	g := newGuarded(t, a.node("n1"))
	c, err := Open(t.Context(), g.addr, Config{Credential: a.principal("ann")})
	check(t, err)
	defer c.Close()
	value := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB
	var all sync.WaitGroup
	for _, key := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			if err := c.Table("t").Apply(context.Background(), NewRowMutation(key).Set("f:q", value)); err != nil {
				t.Error(err)
				return
			}
			row, err := c.Table("t").Get(context.Background(), key)
			if err != nil || len(row.Cells) != 1 || !bytes.Equal(row.Cells[0].Value, value) {
				t.Errorf("row %s is not what was written: %v", key, err)
			}
		})
	}
	all.Wait()
}

// A token is sent once per connection to nodes of the cluster that created it, and never to others.
// It appears in no log and no error.
func TestToken(t *testing.T) {
	ours, others := newAuthority(t, "c1"), newAuthority(t, "c1")
	g, trap := newGuarded(t, ours.node("n1")), newGuarded(t, others.node("n1"))
	tok := token.New(token.Access, ours.Fingerprint(), time.Now(), time.Hour)
	var log bytes.Buffer
	cfg := Config{Token: tok, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	check(t, get(t, g.addr, cfg))
	callers, auth := g.seen()
	if len(auth) != 1 || auth[0] != tok.Reveal() || callers[0].Kind != pki.Anonymous {
		t.Errorf("%d tokens were sent by %v", len(auth), callers)
	}
	err := get(t, trap.addr, cfg)
	if _, shown := trap.seen(); !errors.Is(err, ErrUnreachable) || len(shown) != 0 {
		t.Errorf("another cluster was shown %d tokens: %v", len(shown), err)
	}
	plain := newFake(t)
	if err := get(t, plain.addr, cfg); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a node without TLS: %v", err)
	} else if secret := tok.Reveal()[30:60]; strings.Contains(log.String()+err.Error(), secret) {
		t.Error("the token is in the log or the error")
	}
	if !strings.Contains(log.String(), "node unreachable") {
		t.Error("nothing was logged, so the check has no effect")
	}
	join := token.New(token.Join, ours.Fingerprint(), time.Now(), time.Hour)
	for _, bad := range []Config{{Token: join}, {Token: tok, Credential: ours.principal("ann")}} {
		if err := get(t, g.addr, bad); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("a config that contradicts itself: %v", err)
		}
	}
}

// A token that a node rejects is not sent again, and the error contains the reason.
func TestTokenIsRejected(t *testing.T) {
	ours := newAuthority(t, "c1")
	g := newGuarded(t, ours.node("n1"))
	g.no = &IdentityError{Reason: api.IdentityBadToken, Text: "there is no such token"}
	_, err := Open(t.Context(), g.addr, Config{Token: token.New(token.Access, ours.Fingerprint(), time.Now(), time.Hour), RetryTimeMax: time.Minute})
	var got *IdentityError
	if !errors.As(err, &got) || *got != *g.no.(*IdentityError) || !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("error %v, want the node's error", err)
	}
	if callers, auth := g.seen(); len(auth) != 1 || len(callers) != 0 {
		t.Errorf("%d requests, and the token was sent %d times", len(callers), len(auth))
	}
}
