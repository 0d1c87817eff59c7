package node_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// tokenTestCluster is a cluster of one node, made by Initialise, and hosts without keys that are to
// join it by tokens.
func tokenTestCluster(t *testing.T, n int) (*testCluster, *transcript) {
	f, log := newTestCluster(t, n), &transcript{}
	for i := range f.cfgs {
		cfg := &f.cfgs[i]
		cfg.Security = filepath.Join(cfg.DataDirs[0], certs.FolderName)
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", cfg.Name)
		if i == 0 {
			f.as = good(enrol.Initialise(cfg.DataDirs, cfg.Security, []string{"127.0.0.1"}, time.Now()))
		} else {
			cfg.Join = f.addrs[:1]
		}
	}
	f.start(0)
	if t.Failed() {
		t.FailNow()
	}
	return f, log
}

// give has the hosts from i on join by the token.
func (f *testCluster) give(text string, from int) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "token")
	if err := secretfile.Write(file, []byte(text+"\n")); err != nil {
		f.t.Fatal(err)
	}
	for i := range f.cfgs[from:] {
		f.cfgs[from+i].TokenFile = file
	}
}

func (f *testCluster) token(r client.TokenRequest) *client.CreatedToken {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	r.Kind = api.TokenJoin
	t, err := f.client(0).JoinTokens().Create(ctx, r)
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never so: %s", what)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}

func (f *testCluster) authorityFile(i int) string { return filepath.Join(f.cfgs[i].Security, "ca.key") }

// TestJoinByToken: two hosts that have a token and an address become nodes of a cluster, vote
// in it and then sign certificates as the first does; no log has a token or key. They start
// again without the token. One that votes no more has the authority's key no more.
func TestJoinByToken(t *testing.T) {
	t.Parallel()
	f, log := tokenTestCluster(t, 3)
	made := f.token(client.TokenRequest{Uses: 2})
	f.give(made.Text, 1)
	f.startAll()
	f.await(0, "three voters", votersAlive(3))
	for i, n := range f.nodes {
		if n.ClusterID() != f.as.Peer().Cluster {
			t.Errorf("node %d is of cluster %s", i, n.ClusterID())
		}
		eventually(t, "each voter has the authority's key", func() bool { return exists(f.authorityFile(i)) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	infos, err := f.client(1).JoinTokens().List(ctx)
	if err != nil || len(infos) != 1 || infos[0].Uses != 0 || len(infos[0].UsedBy) != 2 || infos[0].ID != made.Info.ID {
		t.Errorf("tokens: %+v, %v", infos, err)
	}
	if _, err := f.client(2).Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	rights, err := acl.DecodePolicy(good(f.nodes[1].File(ctx, acl.ClusterFile)))
	if err != nil || !rights.Rights(keydir.FirstPrincipal).Has(acl.Admin) || len(rights.Grants) != 1 {
		t.Errorf("the rights of a new cluster: %+v, %v", rights, err)
	}
	first, err := acl.DecodePrincipal(good(f.nodes[1].File(ctx, acl.PrincipalFile(keydir.FirstPrincipal))))
	if err != nil || first.Check(f.as.Peer().Generation) != nil {
		t.Errorf("its first principal: %+v, %v", first, err)
	}
	if b, err := f.nodes[1].File(ctx, acl.EpochFile); err != nil || len(b) != 8 {
		t.Errorf("the epoch of its rights: % x, %v", b, err)
	}
	f.stop(2)
	if err := os.Remove(f.cfgs[2].TokenFile); err != nil {
		t.Fatal(err)
	}
	f.cfgs[2].Join = nil
	f.start(2)
	f.await(2, "three voters again", votersAlive(3))
	if err := f.client(2).Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v"))); err != nil {
		t.Error(err)
	}

	// The first node may go: another master makes tokens, and signs.
	if err := f.client(1).Nodes().Drain(ctx, f.nodes[0].ID()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who votes no more has the authority's key no more", func() bool { return !exists(f.authorityFile(0)) })
	joined := string(good(os.ReadFile(filepath.Join(f.cfgs[0].Security, "audit", "audit.log"))))
	for _, want := range []string{
		fmt.Sprintf(`"action":"create_token","on":"token %s for 2 hosts","outcome":"done"`, made.Info.ID),
		fmt.Sprintf(`"action":"security.join","on":"node %s by token %s","outcome":"done"`, f.nodes[1].ID(), made.Info.ID),
		fmt.Sprintf(`"name":"%s"`, f.nodes[2].ID()), `"action":"security.authority","on":"ca.key","outcome":"done"`,
	} {
		if !strings.Contains(joined, want) {
			t.Errorf("the audit log has no %s:\n%s", want, joined)
		}
	}
	again := func() (made *client.CreatedToken, err error) {
		return f.client(0).JoinTokens().Create(ctx, client.TokenRequest{Kind: api.TokenJoin})
	}
	second, err := again()
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.joinAs(second.Text, newJoiner("nfresh"))
	if err != nil {
		t.Errorf("join by a master that has joined by a token itself: %v", err)
	}
	denied := 0
	for i := range f.addrs[1:] {
		switch _, err := f.ask(f.credential(0), f.addrs[1+i], "security.authority", nil); {
		case errors.Is(err, rpc.CodePermissionDenied):
			denied++
		case !errors.Is(err, rpc.CodeUnavailable):
			t.Errorf("a node without a vote asks for the authority's key: %v", err)
		}
	}
	if denied != 2 {
		t.Errorf("%d nodes have denied the authority's key to one without a vote, want two", denied)
	}
	for i := range f.cfgs {
		keys := good(os.ReadFile(keydir.At(f.cfgs[i].Security).NodeFile()))
		expectAbsent(t, log.String(), string(keys), good(keydir.At(f.cfgs[i].Security).Load()).GossipKeys)
		if exists(filepath.Join(f.cfgs[i].Security, "join.key")) {
			t.Errorf("the key by which node %d has asked to join is still there", i)
		}
	}
	expectAbsent(t, log.String(), string(good(os.ReadFile(f.authorityFile(1)))), nil)
	expectNoToken(t, log.String(), made.Text, second.Text)
	if !strings.Contains(log.String(), made.Info.ID) {
		t.Error("the log does not tell which token was used")
	}
}

// expectNoToken looks for pieces of tokens in a log.
func expectNoToken(t testing.TB, log string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		body := strings.TrimPrefix(text, "stele-join-")
		for i := 0; i+16 <= 48; i += 8 { // id and secret
			if strings.Contains(log, body[i:i+16]) {
				t.Errorf("the log has a piece of the token: %s", body[i:i+16])
			}
		}
	}
}

// joiner is a host that asks to be a node.
type joiner struct {
	node string
	key  crypto.Signer
}

func newJoiner(id string) joiner { return joiner{id, good(pki.NewKey())} }

// joinAs asks as a host does, and returns the certificate.
func (f *testCluster) joinAs(text string, j joiner) ([]byte, error) {
	var leaf []byte
	pinned := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
	err := f.over(f.addrs[0], pinned, "security.join", func(e *wire.Encoder) {
		e.Array(4)
		e.Str(text)
		e.Bin(good(pki.NewRequest(j.key)))
		e.Str(j.node)
		e.Array(0)
	}, func(d *wire.Decoder) error {
		d.Array()
		leaf = bytes.Clone(d.Bytes())
		d.Skip()
		d.Skip()
		d.Skip()
		d.Skip()
		return d.Err()
	})
	return leaf, err
}

// over makes one call on a new connection, and retries while the answer is that it may.
func (f *testCluster) over(addr string, cfg *tls.Config, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error {
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	for {
		conn, err := rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) {
			d := tls.Dialer{Config: cfg}
			return d.DialContext(ctx, "tcp", addr)
		}})
		if err != nil {
			return err
		}
		err = conn.Call(ctx, method, params, result)
		conn.Close()
		if !errors.Is(err, rpc.CodeOverloaded) && !errors.Is(err, rpc.CodeUnavailable) || ctx.Err() != nil {
			return api.FromRPC(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// ask makes a call with a credential, once.
func (f *testCluster) ask(as *pki.Credential, addr, method string, params func(*wire.Encoder)) (conn *rpc.Conn, err error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	e := pki.NewEndpoint(as, pki.Options{})
	conn, err = rpc.Dial(ctx, addr, rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) { return e.Dial(ctx, "", addr) }})
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() { conn.Close() })
	if params == nil {
		params = func(e *wire.Encoder) { e.Array(0) }
	}
	return conn, conn.Call(ctx, method, params, func(d *wire.Decoder) error { d.Skip(); return d.Err() })
}

func (f *testCluster) credential(i int) *pki.Credential {
	return good(pki.ReadCredential(keydir.At(f.cfgs[i].Security).NodeFile()))
}

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// forge returns a token of another secret, or id, whose text is in order.
func forge(text string, at int) string {
	body := strings.TrimPrefix(text, "stele-join-")
	var b []byte
	acc, bits := 0, 0
	for _, c := range body {
		acc, bits = acc<<5|strings.IndexRune(crockford, c), bits+5
		if bits >= 8 {
			b = append(b, byte(acc>>(bits-8)))
			bits -= 8
			acc &= 1<<bits - 1
		}
	}
	b[at] ^= 1
	binary.BigEndian.PutUint32(b[62:], crc.Sum([]byte("stele-join-"), b[:62]))
	var out strings.Builder
	acc, bits = 0, 0
	for _, c := range append(b, 0) {
		acc, bits = acc<<8|int(c), bits+8
		for bits >= 5 {
			out.WriteByte(crockford[acc>>(bits-5)&31])
			bits -= 5
		}
		acc &= 1<<bits - 1
	}
	return "stele-join-" + out.String()[:len(body)]
}

// TestTokensAreRefused: no host gets a certificate by a token that is not good, or good for
// another, nor the id of another node by one that is good.
func TestTokensAreRefused(t *testing.T) {
	t.Parallel()
	f, log := tokenTestCluster(t, 1)
	want := func(what, reason, text string, j joiner) {
		t.Helper()
		leaf, err := f.joinAs(text, j)
		var refused *client.TokenRefusedError
		if !errors.As(err, &refused) || refused.Reason != reason || len(leaf) > 0 {
			t.Errorf("%s: %v, want %s", what, err, reason)
		}
	}
	lets := func(what, text string, j joiner) {
		t.Helper()
		leaf, err := f.joinAs(text, j)
		if err != nil || len(leaf) == 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	one := f.token(client.TokenRequest{})
	for i := range 4 {
		for _, at := range []int{1, 9, 24} { // id, secret, its end
			if forged := forge(one.Text, at); i == 0 {
				if _, err := token.Parse(forged); err != nil {
					t.Fatalf("the forgery is not in order: %v", err)
				}
				want(fmt.Sprintf("byte %d is another", at), api.TokenUnknown, forged, newJoiner("na"))
			}
		}
	}
	want("cut", api.TokenMalformed, one.Text[:40], newJoiner("na"))
	want("no token", api.TokenMalformed, "", newJoiner("na"))
	want("the id of a node that is there", api.TokenTaken, one.Text, newJoiner(f.nodes[0].ID()))
	a := newJoiner("na")
	lets("the first use", one.Text, a)
	lets("the same host, whose answer was lost", one.Text, a)
	want("replay by another host", api.TokenSpent, one.Text, newJoiner("nb"))
	want("replay with another key", api.TokenSpent, one.Text, newJoiner("na"))

	two := f.token(client.TokenRequest{Uses: 2})
	want("the id of a node that has joined and not started", api.TokenTaken, two.Text, newJoiner("na"))
	lets("the same key with another token", two.Text, a)
	for _, bad := range []string{"", "node:x", "n/../m", strings.Repeat("n", 65)} {
		if _, err := f.joinAs(two.Text, newJoiner(bad)); !errors.Is(err, rpc.CodeBadRequest) {
			t.Errorf("id %q: %v", bad, err)
		}
	}
	own := f.token(client.TokenRequest{Node: "n1"})
	want("a token for another node", api.TokenOtherNode, own.Text, newJoiner("nc"))
	lets("a token for this node", own.Text, newJoiner(f.nodes[0].ID()))
	want("a token for this node, once more", api.TokenSpent, own.Text, newJoiner(f.nodes[0].ID()))

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := f.client(0)
	revoked := f.token(client.TokenRequest{})
	if err := c.JoinTokens().Revoke(ctx, revoked.Info.ID); err != nil {
		t.Error(err)
	}
	want("a token that was revoked", api.TokenUnknown, revoked.Text, newJoiner("nd"))
	if err := c.JoinTokens().Revoke(ctx, revoked.Info.ID); !errors.Is(err, client.ErrTokenRefused) {
		t.Errorf("revoked twice: %v", err)
	}
	short := f.token(client.TokenRequest{TTL: time.Second})
	time.Sleep(time.Until(time.UnixMilli(short.Info.EndsMS)) + 10*time.Millisecond)
	want("a token that has ended", api.TokenExpired, short.Text, newJoiner("ne"))
	for what, r := range map[string]client.TokenRequest{
		"of no kind": {}, "for years": {Kind: api.TokenJoin, TTL: 365 * 24 * time.Hour}, "for too many": {Kind: api.TokenJoin, Uses: 1001},
		"for a node that is not there": {Kind: api.TokenJoin, Node: "nobody"}, "for a node, twice": {Kind: api.TokenJoin, Node: "n1", Uses: 2},
	} {
		if _, err := c.JoinTokens().Create(ctx, r); err == nil {
			t.Errorf("a token %s was made", what)
		}
	}
	expectNoToken(t, log.String(), one.Text, two.Text, own.Text, revoked.Text, short.Text)
	blind := &tls.Config{InsecureSkipVerify: true}
	for _, method := range []string{api.MethodCreateToken, api.MethodListTokens, api.MethodRevokeToken, "security.renew", "security.authority", "security.issuer"} {
		if err := f.over(f.addrs[0], blind, method, func(e *wire.Encoder) { e.Array(0) }, nil); !errors.Is(err, rpc.CodeUnauthenticated) {
			t.Errorf("%s by a stranger: %v", method, err)
		}
	}
	for _, method := range []string{"security.renew", "security.authority", "security.issuer"} {
		if _, err := f.ask(f.as, f.addrs[0], method, nil); !errors.Is(err, rpc.CodePermissionDenied) {
			t.Errorf("%s by a principal: %v", method, err)
		}
	}
}

// TestJoinFlood: a host that tries many tokens is soon throttled, but not for long.
func TestJoinFlood(t *testing.T) {
	t.Parallel()
	f, _ := tokenTestCluster(t, 1)
	good, bad := f.token(client.TokenRequest{}), token.New(token.Join, pki.Fingerprint{}, time.Now(), time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := rpc.Dial(ctx, f.addrs[0], rpc.ConnConfig{Dialer: func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	j := newJoiner("na")
	request, err := pki.NewRequest(j.key)
	if err != nil {
		t.Fatal(err)
	}
	refused, waits := 0, 0
	began := time.Now()
	for range 60 {
		switch err := conn.Call(ctx, "security.join", func(e *wire.Encoder) {
			e.Array(4)
			e.Str(bad.Reveal())
			e.Bin(request)
			e.Str(j.node)
			e.Array(0)
		}, nil); {
		case errors.Is(err, api.CodeTokenRefused):
			refused++
		case errors.Is(err, rpc.CodeOverloaded):
			waits++
		default:
			t.Fatal(err)
		}
	}
	if most := 10 * (2 + int(time.Since(began)/time.Second)); refused > most || refused+waits != 60 {
		t.Errorf("in %v %d were refused and %d told to wait", time.Since(began), refused, waits)
	}
	if _, err := f.joinAs(good.Text, j); err != nil {
		t.Errorf("a good one afterwards: %v", err)
	}
}

// TestTokenStaysHome: a host sends its token only to nodes of the cluster that created it, and joins no other.
func TestTokenStaysHome(t *testing.T) {
	t.Parallel()
	f, _ := tokenTestCluster(t, 2)
	made := f.token(client.TokenRequest{})
	f.give(made.Text, 1)
	foreign := good(pki.NewAuthority(f.as.Peer().Cluster, time.Now())) // it even has the name of the same cluster
	fake := pki.NewEndpoint(issue(t, foreign, nodeOf(foreign.SignNode, f.nodes[0].ID())), pki.Options{})
	l := good(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	heard := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			secured := tls.Server(c, fake.Server())
			b := make([]byte, 1024)
			n, _ := secured.Read(b)
			heard <- string(b[:n])
			c.Close()
		}
	}()
	f.cfgs[1].Join = []string{l.Addr().String()}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := f.open(ctx, 1); !errors.Is(err, pki.ErrUntrusted) {
		t.Errorf("a host whose only address is another cluster's: %v", err)
	}
	select {
	case got := <-heard:
		if got != "" {
			t.Errorf("the other cluster got %q", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("nobody came to the other cluster")
	}
	f.cfgs[1].Join = []string{l.Addr().String(), f.addrs[0]} // one of them is right
	f.start(1)
}

// nodeOf has issue sign a node's certificate.
func nodeOf(sign func([]byte, string, []string, time.Time) (*x509.Certificate, error), id string) func([]byte) (*x509.Certificate, error) {
	return func(r []byte) (*x509.Certificate, error) { return sign(r, id, nil, time.Now()) }
}

// TestRemovedNodeIsTurnedAway: a node that was removed loses its connections, gets no others,
// and no certificate, neither by renewal nor by a token.
func TestRemovedNodeIsTurnedAway(t *testing.T) {
	t.Parallel()
	f, log := tokenTestCluster(t, 2)
	f.cfgs[1].VoterStable = time.Hour
	f.give(f.token(client.TokenRequest{}).Text, 1)
	f.start(1)
	id := f.nodes[1].ID()
	as := f.credential(1)
	conn, err := f.ask(as, f.addrs[0], "cluster.who", nil)
	if err != nil {
		t.Fatal(err)
	}
	f.stop(1)
	made := f.token(client.TokenRequest{Node: id})
	fresh := f.token(client.TokenRequest{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eventually(t, "the node can be removed", func() bool { return f.client(0).Nodes().Remove(ctx, id, true) == nil })
	select {
	case <-conn.Done():
	case <-time.After(20 * time.Second):
		t.Error("a connection of a node that was removed lives on")
	}
	if _, err := f.ask(as, f.addrs[0], "cluster.who", nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a node that was removed asks: %v", err)
	}
	for what, text := range map[string]string{"a token for it": made.Text, "a token for new hosts": fresh.Text} {
		_, err := f.joinAs(text, newJoiner(id))
		var refused *client.TokenRefusedError
		if !errors.As(err, &refused) || refused.Reason != api.TokenRemoved {
			t.Errorf("it joins by %s: %v", what, err)
		}
	}
	short, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	if _, err := f.open(short, 1); err == nil {
		t.Error("a node that was removed starts")
	}
	if !strings.Contains(log.String(), "this node may have been removed") {
		t.Errorf("the log of the node that was removed does not say what may be wrong:\n%s", log)
	}
	if _, err := f.client(0).JoinTokens().Create(ctx, client.TokenRequest{Kind: api.TokenJoin, Node: id}); !errors.Is(err, client.ErrNodeNotFound) {
		t.Errorf("a token for a node that was removed: %v", err)
	}
}

// aged replaces a node's certificate by one that was made so long ago, and returns it.
func (f *testCluster) aged(i int, age time.Duration) *pki.Credential {
	f.t.Helper()
	a := good(pki.ReadAuthority(f.authorityFile(0)))
	id := f.credential(i).Peer().Name
	old := issue(f.t, a, func(r []byte) (*x509.Certificate, error) {
		return a.SignNode(r, id, []string{"127.0.0.1", "host2.example"}, time.Now().Add(-age))
	})
	if err := pki.WriteCredential(keydir.At(f.cfgs[i].Security).NodeFile(), old); err != nil {
		f.t.Fatal(err)
	}
	return old
}

// TestMemberIsRenewed: a node that does not sign itself has another one renew its certificate
// when two thirds of its life are over, with a new key, and uses it without a restart.
func TestMemberIsRenewed(t *testing.T) {
	t.Parallel()
	f, _ := tokenTestCluster(t, 2)
	f.stop(0)
	for i := range f.cfgs {
		f.cfgs[i].VoterStable = time.Hour // the second does not vote
	}
	f.start(0)
	f.give(f.token(client.TokenRequest{}).Text, 1)
	f.start(1)
	f.stop(1)
	old := f.aged(1, pki.NodeLife*3/4)
	f.start(1)
	eventually(t, "the certificate in the file is another", func() bool {
		now := f.credential(1)
		return now.Peer().Serial != old.Peer().Serial && time.Until(now.Ends()) > pki.NodeLife-time.Hour
	})
	for _, want := range []string{"host2.example", "localhost", "127.0.0.1", "::1"} {
		if hosts := f.credential(1).Hosts(); !slices.Contains(hosts, want) {
			t.Errorf("the new certificate is for %q, and not for %s", hosts, want)
		}
	}
	if exists(f.authorityFile(1)) {
		t.Error("a node that does not vote has the authority's key")
	}
	eventually(t, "the node shows it", func() bool {
		c := tls.Client(good(net.Dial("tcp", f.nodes[1].RPCAddr())), pki.NewEndpoint(f.as, pki.Options{}).DialNode(f.nodes[1].ID()))
		defer c.Close()
		return c.Handshake() == nil && c.ConnectionState().PeerCertificates[0].Equal(f.credential(1).Leaf())
	})
	// A node has its own renewed, whatever it asks for.
	conn, err := f.ask(f.credential(1), f.addrs[0], "cluster.who", nil)
	if err != nil {
		t.Fatal(err)
	}
	var leaf []byte
	err = conn.Call(t.Context(), "security.renew", func(e *wire.Encoder) {
		e.Array(3)
		e.Bin(good(pki.NewRequest(good(pki.NewKey()))))
		e.Array(0)
		e.Str(f.nodes[0].ID())
	}, func(d *wire.Decoder) error {
		d.Array()
		leaf = bytes.Clone(d.Bytes())
		d.Skip()
		d.Skip()
		d.Skip()
		d.Skip()
		return d.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := good(x509.ParseCertificate(leaf)); !strings.HasSuffix(c.URIs[0].Path, "/"+f.nodes[1].ID()) {
		t.Errorf("the certificate is that of %s", c.URIs[0])
	}
}

// TestNodeJoinsAgain: a node with an expired certificate reports that and does not start. A token for new hosts does not help, one that was created
// for the node does, and it keeps its id and data.
func TestNodeJoinsAgain(t *testing.T) {
	t.Parallel()
	f, _ := tokenTestCluster(t, 2)
	f.stop(0)
	for i := range f.cfgs {
		f.cfgs[i].VoterStable = time.Hour
	}
	f.start(0)
	f.give(f.token(client.TokenRequest{}).Text, 1)
	f.start(1)
	id := f.nodes[1].ID()
	f.stop(1)
	f.aged(1, pki.NodeLife+time.Hour)
	f.cfgs[1].TokenFile = ""
	if _, err := f.open(t.Context(), 1); !errors.Is(err, enrol.ErrExpired) || !strings.Contains(err.Error(), "--node "+id) {
		t.Errorf("without a token: %v", err)
	}
	f.give(f.token(client.TokenRequest{}).Text, 1)
	var refused *client.TokenRefusedError
	if _, err := f.open(t.Context(), 1); !errors.As(err, &refused) || refused.Reason != api.TokenTaken {
		t.Errorf("with a token for new hosts: %v", err)
	}
	other := good(pki.NewAuthority("c0", time.Now()))
	f.give(token.New(token.Join, other.Fingerprint(), time.Now(), time.Hour).Reveal(), 1)
	if _, err := f.open(t.Context(), 1); !errors.Is(err, pki.ErrUntrusted) {
		t.Errorf("with a token of another cluster: %v", err)
	}
	f.give(f.token(client.TokenRequest{Node: id}).Text, 1)
	f.start(1)
	if t.Failed() {
		t.FailNow()
	}
	if f.nodes[1].ID() != id || time.Until(f.credential(1).Ends()) < pki.NodeLife-time.Hour {
		t.Errorf("it is node %s, whose certificate ends %v", f.nodes[1].ID(), f.credential(1).Ends())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if nodes, err := f.client(1).Nodes().List(ctx); err != nil || len(nodes) != 2 {
		t.Errorf("nodes: %v, %v", nodes, err)
	}
}
