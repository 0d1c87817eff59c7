package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// cluster is one node, and a client with all rights.
type cluster struct {
	t     testing.TB
	node  *node.Node
	admin *client.Client
	trust *pki.Trust // nil: the node is open
}

// startOpen starts a node without users.
func startOpen(t testing.TB) *cluster {
	c := &cluster{t: t}
	c.start(node.Config{DataDirs: []string{t.TempDir()}, Gossip: "off", HTTP: "127.0.0.1:0"}, client.Config{})
	return c
}

// startSecured starts a node with users, whose console is at an address.
func startSecured(t *testing.T, address string) *cluster {
	t.Helper()
	return startSecuredWith(t, node.Config{HTTP: address})
}

// startSecuredWith starts a node with users.
func startSecuredWith(t *testing.T, cfg node.Config) *cluster {
	t.Helper()
	c := &cluster{t: t}
	dir := t.TempDir()
	keys := filepath.Join(dir, certs.FolderName)
	admin, err := enrol.Initialise([]string{dir}, keys, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cfg.DataDirs, cfg.Security, cfg.Gossip = []string{dir}, keys, "127.0.0.1:0"
	c.start(cfg, client.Config{Credential: admin})
	own, err := keydir.At(keys).Load()
	if err != nil {
		t.Fatal(err)
	}
	c.trust = own.Credential.Trust()
	return c
}

func (c *cluster) start(cfg node.Config, asAdmin client.Config) {
	c.t.Helper()
	cfg.Listen, cfg.Bigtable, cfg.MemoryBytes, cfg.ExtentBytes = "127.0.0.1:0", "off", 256<<20, 1<<20
	var err error
	if c.node, err = node.Start(c.t.Context(), cfg); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { c.stop() })
	if c.admin, err = client.Open(c.t.Context(), c.node.RPCAddr(), asAdmin); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = c.admin.Close() })
}

// stop closes the node, once.
func (c *cluster) stop() {
	if c.node == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.node.Close(ctx); err != nil {
		c.t.Error(err)
	}
	c.node = nil
}

// create creates a table with the families f and g.
func (c *cluster) create(name string, rows ...string) {
	c.t.Helper()
	if _, err := c.admin.Tables().Create(c.t.Context(), name, table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
		c.t.Fatal(err)
	}
	for _, row := range rows {
		if err := c.admin.Table(name).Apply(c.t.Context(), client.NewRowMutation(row).Set("f:q", []byte("value of "+row))); err != nil {
			c.t.Fatal(err)
		}
	}
}

// user adds a user with rights on a table, or without any, and returns an access token.
func (c *cluster) user(name, on, rights string) string {
	c.t.Helper()
	made, _, err := c.admin.Users().AddToken(c.t.Context(), name, time.Hour, "")
	if err == nil && rights != "" {
		err = c.admin.Grants().Add(c.t.Context(), client.Grant{Principal: name, Table: on, Rights: rights})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return made.Reveal()
}

// address returns the address of a page.
func (c *cluster) address(path string) string {
	scheme, addr := "http", c.node.HTTPAddr()
	if c.trust != nil && !strings.HasPrefix(addr, "127.") {
		scheme, addr = "https", "127.0.0.1"+addr[strings.LastIndex(addr, ":"):]
	}
	return scheme + "://" + addr + path
}

// visitTimeout ends a visit, also one of a live page.
const visitTimeout = 40 * time.Second

// visitor is a browser without scripts.
type visitor struct {
	c    *cluster
	http http.Client
}

// visitor returns a browser without cookies, with a certificate unless credential is nil.
func (c *cluster) visitor(credential *pki.Credential) *visitor {
	jar, _ := cookiejar.New(nil)
	transport := &http.Transport{}
	if c.trust != nil {
		if credential == nil {
			credential = pki.AnonymousCredential(c.trust)
		}
		transport.TLSClientConfig = pki.NewEndpoint(credential, pki.Options{}).DialNode("")
	}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &visitor{c, http.Client{Jar: jar, Transport: transport, Timeout: visitTimeout}}
}

// page is what a visitor gets.
type page struct {
	status int
	path   string // after redirects
	text   string
	header http.Header
}

func (v *visitor) get(path string) *page {
	v.c.t.Helper()
	return v.do(good(http.NewRequestWithContext(v.c.t.Context(), http.MethodGet, v.c.address(path), nil)))
}

// post sends a form, as a page of the console does.
func (v *visitor) post(path string, form url.Values) *page {
	v.c.t.Helper()
	r := good(http.NewRequestWithContext(v.c.t.Context(), http.MethodPost, v.c.address(path), strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return v.do(r)
}

func (v *visitor) do(r *http.Request) *page {
	v.c.t.Helper()
	answer, err := v.http.Do(r)
	if err != nil {
		v.c.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.c.t.Fatal(err)
	}
	return &page{answer.StatusCode, answer.Request.URL.Path, string(body), answer.Header}
}

// want fails the test unless a page has the status and all texts, and none after "!".
func (p *page) want(t *testing.T, status int, texts ...string) {
	t.Helper()
	if p.status != status {
		t.Errorf("%s: status %d, want %d:\n%s", p.path, p.status, status, p.main())
	}
	for _, text := range texts {
		if not, without := strings.CutPrefix(text, "!"); strings.Contains(p.text, not) == without {
			t.Errorf("%s: want %q in\n%s", p.path, text, p.main())
		}
	}
}

// main returns the main part of a page.
func (p *page) main() string {
	_, main, _ := strings.Cut(p.text, "<main")
	return main
}

func good[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprint("unexpected: ", err))
	}
	return v
}
