package limits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testport"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// site is a cluster of one or more nodes, and a client of it.
type site struct {
	t       *testing.T
	program string
	nodes   []*process
	cred    *pki.Credential // of the client; nil if the nodes are open
	other   *pki.Credential // of a hostile user
	c       *client.Client
	dir     string // of data and credential files; "" if the nodes are open

	// gossip and http are addresses of the first node; "" if it has none.
	gossip, http string
	// rough is set if the results of calls are not checked: a node is killed, or rejects
	// connections.
	rough bool
}

// open starts a single node without security and pages.
func open(t *testing.T, program string) *site {
	s := &site{t: t, program: program}
	s.add("n1", "--dev", "--config", os.DevNull, "--http", "off", "--gossip", "off")
	s.connect()
	return s
}

// secured starts nodes as in production: with certificates, gossip and pages.
func secured(t *testing.T, program string, nodes int) *site {
	s := &site{t: t, program: program, gossip: newAddr(t), http: newAddr(t)}
	dir := t.TempDir()
	s.dir = dir
	s.run("init", "--data-dir", filepath.Join(dir, "n1"), "--out", filepath.Join(dir, "admin.pem"))
	var err error
	if s.cred, err = pki.ReadCredential(filepath.Join(dir, "admin.pem")); err != nil {
		t.Fatal(err)
	}
	s.add("n1", "--config", os.DevNull, "--data-dir", filepath.Join(dir, "n1"), "--http", s.http, "--gossip", s.gossip)
	s.connect()
	s.run("user", "add", "other", "--out", filepath.Join(dir, "other.pem"), "--addr", s.nodes[0].addr, "--credential", filepath.Join(dir, "admin.pem"))
	if s.other, err = pki.ReadCredential(filepath.Join(dir, "other.pem")); err != nil {
		t.Fatal(err)
	}
	s.run("acl", "grant", "other", "read", "--cluster", "--addr", s.nodes[0].addr, "--credential", filepath.Join(dir, "admin.pem"))
	if nodes == 1 {
		return s
	}
	token := filepath.Join(dir, "token")
	s.run("token", "create", "--uses", strconv.Itoa(nodes-1), "--out", token, "--addr", s.nodes[0].addr, "--credential", filepath.Join(dir, "admin.pem"))
	for i := 2; i <= nodes; i++ {
		name := "n" + strconv.Itoa(i)
		s.add(name, "--config", os.DevNull, "--data-dir", filepath.Join(dir, name), "--http", newAddr(t), "--gossip", newAddr(t),
			"--join", s.nodes[0].addr, "--token-file", token)
	}
	s.await("all vote", func(ctx context.Context) bool {
		st, err := s.c.Nodes().RaftStatus(ctx)
		return err == nil && len(st.Servers) == nodes
	})
	return s
}

func newAddr(t *testing.T) string {
	addr, err := testport.New()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// run runs a command of the program to its end.
func (s *site) run(args ...string) {
	cmd := exec.Command(s.program, args...)
	cmd.Env = append(os.Environ(), "STELE_CREDENTIAL=")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("stele %s: %v: %s", args[0], err, out)
	}
}

// add starts another node.
func (s *site) add(name string, args ...string) {
	p := &process{t: s.t, name: name, addr: newAddr(s.t)}
	p.args = append([]string{"serve", "--name", name, "--listen", p.addr, "--bigtable", "off", "--memory", strconv.Itoa(memory), "--extent-size", "4MiB", "--reserve", "64MiB",
		"--voter-stable", "1s"}, args...)
	if s.cred == nil {
		p.args = append(p.args, "--data-dir", filepath.Join(s.t.TempDir(), "data"))
	}
	p.start(s.program)
	s.nodes = append(s.nodes, p)
	s.t.Cleanup(func() {
		p.end()
		if s.t.Failed() {
			s.t.Logf("the end of the log of %s:\n%s", name, &p.log)
		}
	})
}

// connect waits until the first node serves.
func (s *site) connect() {
	s.c = s.awaitServing(s.nodes[0])
	s.t.Cleanup(func() { s.c.Close() })
}

// awaitServing waits until a node is ready and returns a client of it.
func (s *site) awaitServing(p *process) (c *client.Client) {
	s.await(p.name+" serves", func(ctx context.Context) bool {
		var err error
		if c, err = client.Open(ctx, p.addr, client.Config{Credential: s.cred}); err != nil {
			return false
		}
		st, err := c.Status(ctx)
		if err != nil || !st.Ready {
			c.Close()
			return false
		}
		return true
	})
	return c
}

func (s *site) await(what string, is func(context.Context) bool) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithDeadline(s.t.Context(), end)
		ok := is(ctx)
		cancel()
		if ok {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("wait %v for: %s", patience, what)
		}
	}
}

// createTable creates a table with a plain family, an in-memory one and one with two-pass
// compression. With several nodes it has tablets on all of them.
func (s *site) createTable() {
	var specs []table.FamilySpec
	for _, text := range []string{"f:versions=1", "m:versions=1,group=m,in-memory", "two:versions=1,group=two,compression=two-pass"} {
		spec, err := table.ParseFamilySpec(text)
		if err != nil {
			s.t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	var at []string
	if len(s.nodes) > 1 {
		at = []string{"batch9", "huge0000007", "large0000100", "large0000300", "medium0000200", "small0001000", "wide"}
	}
	if _, err := s.c.Tables().CreateSplit(s.t.Context(), "t", at, specs...); err != nil {
		s.t.Fatal(err)
	}
}

// dial connects to a node as the hostile user. The connection ends with ctx.
func (s *site) dial(ctx context.Context, i int) (net.Conn, error) {
	conn, err := dialTCP(ctx, s.nodes[i%len(s.nodes)].addr)
	if err != nil || s.cred == nil {
		return conn, err
	}
	over, err := pki.NewEndpoint(s.other, pki.Options{}).Over(ctx, "", conn)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRejected, err)
	}
	return over, nil
}

// errRejected means that the node rejected a connection: it has enough of them.
var errRejected = errors.New("connection rejected")

// dialTCP connects to an address. The connection ends with ctx.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRejected, err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn, nil
}

var pages = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
