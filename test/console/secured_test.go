package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node/signin"
)

// allPages are the addresses of all pages.
var allPages = []string{"/", "/nodes", "/nodes/x", "/tables", "/tables/web", "/tables/web/row", "/tables/web/versions?row=a&column=f:q", "/audit", "/logs", "/requests", "/backups", "/users", "/quotas", "/clusters", "/clients", "/jobs"}

// secret is in a row that only some users may see.
const secret = "com.secret"

// TestStrangers (CO1): without a credential, and with a wrong one, only the page to sign in is shown, and nothing is changed.
func TestStrangers(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} { // without TLS, and with it
		t.Run(address, func(t *testing.T) {
			c := startSecured(t, address)
			c.create("web", secret)
			for _, v := range []*visitor{c.visitor(nil), withCookie(c, "x"), withCookie(c, strings.Repeat("A", 64))} {
				for _, path := range allPages {
					p := v.get(path)
					p.want(t, http.StatusOK, "Sign in", "!"+secret, "!"+c.node.ID())
					if p.path != "/signin" {
						t.Errorf("%s led to %s", path, p.path)
					}
				}
				p := v.post("/nodes/"+c.node.ID()+"/drain", nil)
				p.want(t, http.StatusOK, "Sign in")
				r := good(http.NewRequestWithContext(t.Context(), http.MethodGet, c.address("/tables"), nil))
				r.Header.Set("Accept", "text/event-stream")
				v.do(r).want(t, http.StatusUnauthorized)
			}
			c.visitor(nil).post("/signin", url.Values{"token": {"wrong"}}).want(t, http.StatusUnauthorized, "not an access token", "Sign in")
			nodes, err := c.admin.Nodes().List(t.Context())
			if err != nil || nodes[0].Draining {
				t.Errorf("a stranger has drained the node: %v", err)
			}
		})
	}
}

// withCookie returns a visitor with a cookie of its own making.
func withCookie(c *cluster, value string) *visitor {
	v := c.visitor(nil)
	v.http.Jar.SetCookies(good(url.Parse(c.address("/"))), []*http.Cookie{{Name: signin.CookieName(c.node.RPCAddr()), Value: value}})
	return v
}

// TestSignIn: a user signs in with a token, sees what it may, and stays signed in until it signs out, or the token is revoked.
func TestSignIn(t *testing.T) {
	c := startSecured(t, "127.0.0.1:0")
	c.create("web", secret)
	c.create("own", "a row")
	operator, reader := c.user("operator", "", "admin,monitor"), c.user("reader", "own", "read")

	v := c.visitor(nil)
	p := v.post("/signin", url.Values{"token": {" " + operator + "\n"}, "to": {"/tables"}})
	p.want(t, http.StatusOK, "operator", "Sign out", `href="/tables/web"`)
	if p.path != "/tables" {
		t.Errorf("led to %s", p.path)
	}
	for _, path := range allPages {
		if path != "/nodes/x" {
			v.get(path).want(t, http.StatusOK, "operator")
		}
	}
	for _, to := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, ""} {
		if p := c.visitor(nil).post("/signin", url.Values{"token": {operator}, "to": {to}}); p.path != "/" {
			t.Errorf("%q led to %s", to, p.path)
		}
	}

	m := c.visitor(nil)
	m.post("/signin", url.Values{"token": {c.user("watcher", "", "monitor")}}).want(t, http.StatusOK, "<dt>Tables</dt><dd>?</dd>", "<dt>Tablets</dt><dd>?</dd>", "You may not see the numbers of tables", "!What is wrong")

	r := c.visitor(nil)
	r.post("/signin", url.Values{"token": {reader}, "to": {"/tables/own/row"}}).want(t, http.StatusOK, "a row", "reader")
	for path, status := range map[string]int{"/tables/web/row": http.StatusNotFound, "/tables/web/versions?row=a&column=f:q": http.StatusNotFound, "/tables/web": http.StatusNotFound, "/": http.StatusForbidden, "/audit": http.StatusForbidden, "/logs": http.StatusForbidden, "/clients": http.StatusForbidden, "/requests": http.StatusForbidden, "/traces/" + traceID: http.StatusForbidden, "/backups": http.StatusForbidden} {
		want := []string{"!" + secret}
		if status == http.StatusForbidden {
			want = append(want, "Sign out", ">reader<")
		}
		r.get(path).want(t, status, want...)
	}
	r.post("/nodes/"+c.node.ID()+"/drain", nil).want(t, http.StatusForbidden)
	r.get("/users").want(t, http.StatusOK, "You are <b>reader</b>", "!operator")

	v.get("/audit").want(t, http.StatusOK, "create_table", "admin", "table web", "!"+operator)
	refusals := v.get("/audit?log=refusals&q=drain")
	for range 100 { // they are written within two seconds
		if strings.Contains(refusals.text, "drain_node") {
			break
		}
		time.Sleep(100 * time.Millisecond)
		refusals = v.get("/audit?log=refusals&q=drain")
	}
	refusals.want(t, http.StatusOK, "reader", "drain_node", "permission_denied")
	v.get("/audit?log=none").want(t, http.StatusBadRequest)
	v.get("/logs").want(t, http.StatusOK, "table created", "table=web")
	v.get("/logs?q=nothing+of+this").want(t, http.StatusOK, "No line contains", "!table=web")
	v.get("/logs?level=error").want(t, http.StatusOK, "!table created")
	v.get("/logs?level=none").want(t, http.StatusBadRequest)
	v.post("/signout", nil).want(t, http.StatusOK, "Paste an access token")
	v.get("/tables").want(t, http.StatusOK, "Paste an access token")
	if err := c.admin.Users().Revoke(t.Context(), "reader"); err != nil {
		t.Fatal(err)
	}
	r.get("/tables/own/row").want(t, http.StatusOK, "Paste an access token", "!a row")
}

// TestCredentials: a certificate of a user, and a token as a bearer, need no cookie; a node's certificate is no user's.
func TestCredentials(t *testing.T) {
	c := startSecured(t, "0.0.0.0:0")
	c.create("web", "a row")
	cred, _, err := c.admin.Users().Add(t.Context(), "ann", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	token := c.user("ann", "web", "read")
	c.visitor(cred).get("/tables/web/row").want(t, http.StatusOK, "a row", "ann")
	r := good(http.NewRequestWithContext(t.Context(), http.MethodGet, c.address("/tables/web/row"), nil))
	r.Header.Set("Authorization", "Bearer "+token)
	c.visitor(nil).do(r).want(t, http.StatusOK, "a row")
	p := c.visitor(nil).post("/signin", url.Values{"token": {token}, "to": {"/users"}})
	p.want(t, http.StatusOK, "You are <b>ann</b>")
	for _, cookie := range p.header["Set-Cookie"] {
		t.Error("the page after signing in sets " + cookie)
	}
}

// TestUsersOfHotRow: the page of keys names the users of a hot row only to users that may see the requests of others.
func TestUsersOfHotRow(t *testing.T) {
	c := startSecured(t, "127.0.0.1:0")
	c.create("web")
	for range 40 {
		if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation("popular").Set("f:q", []byte("v"))); err != nil {
			t.Fatal(err)
		}
	}
	me, err := c.admin.Whoami(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	named := "most by " + me.Name + " (40)"
	for _, user := range []struct{ name, on, rights, want string }{{"ann", "", "read", named}, {"bob", "web", "read,write,admin", "!most by"}} {
		x := openTab(t, 1280, 800)
		x.run(chromedp.Navigate(c.address("/tables/web/keys")), chromedp.KeyEvent(c.user(user.name, user.on, user.rights)+"\r"))
		x.until(`location.pathname === '/tables/web/keys' && document.readyState === 'complete' && !!document.querySelector('canvas')`)
		text := value[string](x, `document.querySelector('main').innerText`)
		if absent := strings.TrimPrefix(user.want, "!"); !strings.Contains(text, "hot: about 0 reads and 40 writes") || strings.Contains(text, absent) != (absent == user.want) {
			t.Errorf("%s sees: %s", user.name, text)
		}
		x.silent(user.name)
	}
}
