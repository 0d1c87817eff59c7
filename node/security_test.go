package node_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// transcript is a log that several nodes write.
type transcript struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *transcript) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// good returns a value that a test cannot do without.
func good[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// issue makes a credential.
func issue(t testing.TB, a *pki.Authority, sign func(request []byte) (*x509.Certificate, error)) *pki.Credential {
	t.Helper()
	key := good(pki.NewKey())
	leaf := good(sign(good(pki.NewRequest(key))))
	return good(pki.NewCredential(key, leaf, good(pki.NewTrust(a.Certificate()))))
}

// secureTestCluster is a cluster of nodes with certificates, whose clients use its first principal.
func secureTestCluster(t testing.TB, n int) (*testCluster, *keydir.Contents, *transcript) {
	f, log := newTestCluster(t, n), &transcript{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the nodes' log:\n%s", log.String())
		}
	})
	var first *keydir.Contents
	for i := range f.cfgs {
		cfg := &f.cfgs[i]
		cfg.Security = filepath.Join(cfg.DataDirs[0], certs.FolderName)
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", cfg.Name)
		if i == 0 {
			f.as = good(enrol.Initialise(cfg.DataDirs, cfg.Security, []string{"127.0.0.1"}, time.Now()))
			first = good(keydir.At(cfg.Security).Load())
			continue
		}
		dirs := good(identity.Inspect(cfg.DataDirs))
		if err := dirs.Write(); err != nil {
			t.Fatal(err)
		}
		own := issue(t, first.Authority, func(r []byte) (*x509.Certificate, error) {
			return first.Authority.SignNode(r, dirs.Node, nil, time.Now())
		})
		if err := keydir.At(cfg.Security).Enrol(&keydir.Contents{Credential: own, GossipKeys: first.GossipKeys}); err != nil {
			t.Fatal(err)
		}
	}
	return f, first, log
}

// TestSecureCluster: nodes with certificates form a cluster, serve a client with one, and
// come back; no log line has any of their keys.
func TestSecureCluster(t *testing.T) {
	t.Parallel()
	f, first, log := secureTestCluster(t, 3)
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = 3, f.addrs[:2]
	}
	f.startAll()
	f.await(0, "three voters", votersAlive(3))
	for _, n := range f.nodes {
		if n.ClusterID() != first.Authority.Cluster() {
			t.Errorf("cluster is %s, and its authority's %s", n.ClusterID(), first.Authority.Cluster())
		}
	}
	c := f.client(1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	f.stop(0)
	f.start(0)
	if row, err := f.client(0).Table("t").Get(ctx, "r"); err != nil || len(row.Cells) != 1 {
		t.Errorf("row after a restart: %v, %v", row, err)
	}
	for i := range f.cfgs {
		keys := good(os.ReadFile(keydir.At(f.cfgs[i].Security).NodeFile()))
		expectAbsent(t, log.String(), string(keys), first.GossipKeys)
	}
	if !strings.Contains(log.String(), first.Authority.Cluster()) {
		t.Error("the log does not name the cluster, so nothing was looked at")
	}
}

// expectAbsent looks for key material in a log.
func expectAbsent(t testing.TB, log, pem string, gossip [][]byte) {
	t.Helper()
	for _, line := range strings.Split(pem, "\n")[1:3] { // of the private key
		if strings.Contains(log, line) {
			t.Error("the log has a piece of a private key")
		}
	}
	for _, k := range gossip {
		if strings.Contains(log, hex.EncodeToString(k)) || strings.Contains(log, string(k)) || strings.Contains(log, fmt.Sprint(k)) {
			t.Error("the log has the gossip key")
		}
	}
	if strings.Contains(log, "PRIVATE KEY") {
		t.Error("the log has a private key")
	}
}

// TestSecureNodeRefuses: on no port does a node with a certificate answer plain bytes, a client without a certificate, or one with a certificate of another
// cluster; and a principal is not accepted as a node.
func TestSecureNodeRefuses(t *testing.T) {
	t.Parallel()
	f, _, log := secureTestCluster(t, 1)
	f.cfgs[0].HTTP = "0.0.0.0:0" // TLS is for addresses that others reach
	f.startAll()
	rpcAddr := f.nodes[0].RPCAddr()
	_, port, _ := net.SplitHostPort(f.nodes[0].HTTPAddr())
	webAddr := "127.0.0.1:" + port

	ping := []byte{0x94, 0x00, 0x01, 0xa4, 'p', 'i', 'n', 'g', 0x90}
	plains := map[string][]byte{"MessagePack": ping, "a preamble": []byte("STELE\x01\x00\n"), "Raft": []byte("R\x00\x01\x90"), "HTTP": []byte("GET /metrics HTTP/1.0\r\n\r\n")}
	for name, b := range plains {
		for port, addr := range map[string]string{"rpc": rpcAddr, "http": webAddr} {
			got := send(t, addr, nil, b)
			if strings.Contains(got, "stele_") || strings.Contains(got, "v1") || len(got) > 0 && got[0] != 0x15 && !strings.HasPrefix(got, "HTTP/1.0 400") &&
				!strings.HasSuffix(got, "\xa6reason\xa6no_tls\xc0") {
				t.Errorf("%s, %s in the clear: got %q", port, name, got)
			}
		}
	}
	foreign := good(pki.NewAuthority(f.as.Peer().Cluster, time.Now()))
	theirs := issue(t, foreign, func(r []byte) (*x509.Certificate, error) {
		return foreign.SignNode(r, f.nodes[0].ID(), nil, time.Now())
	})
	blind := &tls.Config{InsecureSkipVerify: true}
	stranger := pki.NewEndpoint(theirs, pki.Options{}).DialNode("")
	stranger.VerifyConnection = nil // it accepts any server
	if got := send(t, rpcAddr, blind, ping); !strings.Contains(got, "stele") {
		t.Errorf("rpc, a ping without a certificate: got %q", got)
	}
	nodes := []byte("\x94\x00\x01\xaalist_nodes\x90")
	if got := send(t, rpcAddr, blind, nodes); !strings.Contains(got, "unauthenticated") || strings.Contains(got, "127.0.0.1") {
		t.Errorf("rpc, no certificate: got %q", got)
	}
	for name, caller := range map[string]*tls.Config{"no certificate": blind, "another cluster's": stranger} {
		if got := send(t, rpcAddr, caller, ping); got != "" && caller != blind {
			t.Errorf("rpc, %s: got %q", name, got)
		}
		got := send(t, webAddr, caller, []byte("GET /metrics HTTP/1.0\r\n\r\n"))
		if got != "" && !strings.HasPrefix(got, "HTTP/1.0 401") {
			t.Errorf("http, %s: got %.100q", name, got)
		}
	}
	ann := pki.NewEndpoint(f.as, pki.Options{}).DialNode("")
	if got := send(t, rpcAddr, ann, ping); got == "" {
		t.Error("rpc, our principal: got no answer")
	}
	if got := send(t, webAddr, ann, []byte("GET /metrics HTTP/1.0\r\n\r\n")); !strings.Contains(got, "stele_") {
		t.Errorf("http, our principal: got %.100q", got)
	}
	if got := send(t, webAddr, blind, []byte("GET /healthz HTTP/1.0\r\n\r\n")); !strings.HasPrefix(got, "HTTP/1.0 200") {
		t.Errorf("health is for everyone: got %.100q", got)
	}
	greeting := []byte{0x95, 0x01}
	for _, id := range []string{f.nodes[0].ClusterID(), f.nodes[0].ID(), f.nodes[0].ID()} {
		greeting = append(append(greeting, 0xa0|byte(len(id))), id...)
		if len(greeting) < 25 {
			greeting = append(greeting, 0) // the epoch
		}
	}
	if got := send(t, rpcAddr, ann, append([]byte{'R', 0, byte(len(greeting))}, greeting...)); !strings.Contains(got, "not a node") {
		t.Errorf("a principal that calls itself a voter: got %q", got)
	}
	if !strings.Contains(log.String(), pki.ErrUntrusted.Error()) {
		t.Error("the log does not say who was refused")
	}
}

// send sends bytes, with TLS unless caller is nil, and returns what is received within a short time.
func send(t testing.TB, addr string, caller *tls.Config, b []byte) string {
	t.Helper()
	c := good(net.Dial("tcp", addr))
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if caller != nil {
		c = tls.Client(c, caller)
	}
	if _, err := c.Write(b); err != nil {
		return ""
	}
	got, _ := io.ReadAll(io.LimitReader(c, 1<<20))
	return string(got)
}

// TestOpenNodeStaysOut: a node without certificates becomes no part of a cluster with
// them, nor the other way round.
func TestOpenNodeStaysOut(t *testing.T) {
	t.Parallel()
	secure, _, _ := secureTestCluster(t, 1)
	open := newTestCluster(t, 2)
	secure.startAll()
	open.start(0)
	log := &transcript{}
	open.cfgs[1].Join, open.cfgs[1].Logger = secure.addrs, slog.New(slog.NewTextHandler(log, nil))
	var refused *formation.NoCertificateError
	if _, err := open.open(t.Context(), 1); !errors.As(err, &refused) || refused.Address != secure.addrs[0] {
		t.Errorf("an open node joins a secure one: %v", err)
	}
	if !strings.Contains(log.String(), "peer requires certificates") {
		t.Error("the log of the open node does not have the cause")
	}
	conn, err := rpc.Dial(t.Context(), open.addrs[0], rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
		return pki.NewEndpoint(secure.as, pki.Options{}).Dial(ctx, "", addr)
	}})
	if err == nil {
		conn.Close()
		t.Error("an open node speaks TLS")
	}
	if plain := (tls.RecordHeaderError{}); !errors.As(err, &plain) {
		t.Errorf("TLS to an open node: %v, want that it is no TLS", err)
	}
	if _, err := client.Open(t.Context(), open.addrs[0], client.Config{Credential: secure.as, RetryTimeMax: -1}); !errors.Is(err, client.ErrNoTLS) {
		t.Errorf("a client with a credential at an open node: %v, want %v", err, client.ErrNoTLS)
	}
	checkPlainIsRefused(t, secure.addrs[0])
	cfg := secure.cfgs[0]
	cfg.DataDirs, cfg.Listen = []string{t.TempDir()}, "127.0.0.1:0"
	if _, err := node.Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "data folders to node") {
		t.Errorf("keys of another node: %v", err)
	}
	if _, err := enrol.Initialise(secure.cfgs[0].DataDirs, filepath.Join(t.TempDir(), "keys"), nil, time.Now()); err == nil {
		t.Error("a node of a cluster was made the first of another")
	}
}

// checkPlainIsRefused sends requests in plain mode to a port of TLS: each is answered, by its number, with why not.
func checkPlainIsRefused(t *testing.T, addr string) {
	t.Helper()
	for name, request := range map[string]string{
		"short":               "\x94\x00\x07\xa4ping\x90",
		"a number of 5":       "\x94\x00\xce\x00\x00\x00\x07\xa4ping\x90",
		"a number of 9":       "\xdd\x00\x00\x00\x04\x00\xcf\x00\x00\x00\x00\x00\x00\x00\x07\xa4ping\x90",
		"more than is read":   "\x94\x00\x07\xa4read\x92\xa1t\xc6\x00\x00\xff\xff" + strings.Repeat("x", 65535),
		"a number as a float": "\x94\x00\xcb\x40\x1c\x00\x00\x00\x00\x00\x00\xa4ping\x90",
	} {
		d := wire.NewDecoder([]byte(send(t, addr, nil, []byte(request))))
		if n, kind, id := d.Array(), d.Int(), d.Int(); n != 4 || kind != 1 || id != 7 {
			t.Errorf("%s: the answer is an array of %d, of type %d, for request %d: %v", name, n, kind, id, d.Err())
			continue
		}
		e := api.FromRPC(rpc.DecodeError(&d))
		var unknown *api.IdentityError
		if !errors.As(e, &unknown) || unknown.Reason != api.IdentityNoTLS {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// TestCertificateIsRenewed: an issuer whose certificate is near its end, or past it, signs
// another, keeps it, and serves with it without a restart.
func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]time.Duration{"near its end": pki.NodeLife - 2*24*time.Hour, "past its end": pki.NodeLife + time.Hour} {
		t.Run(name, func(t *testing.T) {
			f, first, _ := secureTestCluster(t, 1)
			own := first.Credential.Peer()
			old := issue(t, first.Authority, func(r []byte) (*x509.Certificate, error) {
				return first.Authority.SignNode(r, own.Name, []string{"127.0.0.1", "host1.example"}, time.Now().Add(-age))
			})
			file := keydir.At(f.cfgs[0].Security).NodeFile()
			if err := pki.WriteCredential(file, old); err != nil {
				t.Fatal(err)
			}
			f.startAll()
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				now := good(pki.ReadCredential(file))
				if now.Peer().Serial != old.Peer().Serial && time.Until(now.Ends()) > pki.NodeLife/2 {
					for _, want := range []string{"host1.example", "localhost", "127.0.0.1", "::1"} {
						if !slices.Contains(now.Hosts(), want) {
							t.Errorf("the new certificate is for %q, and not for %s", now.Hosts(), want)
						}
					}
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the certificate in the file ends %v", now.Ends())
				}
			}
			c := tls.Client(good(net.Dial("tcp", f.nodes[0].RPCAddr())), pki.NewEndpoint(f.as, pki.Options{}).DialNode(own.Name))
			defer c.Close()
			if err := c.Handshake(); err != nil {
				t.Errorf("handshake after the renewal: %v", err)
			} else if ends := c.ConnectionState().PeerCertificates[0].NotAfter; time.Until(ends) < pki.NodeLife/2 {
				t.Errorf("the node shows a certificate that ends %v", ends)
			}
		})
	}
}
