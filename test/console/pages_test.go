package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
)

// TestPages: each page of an open cluster shows what is there, and forbids scripts of others.
func TestPages(t *testing.T) {
	c := startOpen(t)
	c.create("web", "com.example")
	c.create("gone")
	if err := c.admin.Tables().Drop(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.Backups().Create(t.Context(), time.Hour, "web"); err != nil {
		t.Fatal(err)
	}
	v := c.visitor(nil)
	for path, texts := range map[string][]string{
		"/":                          {"healthy", "serves", "Nodes alive"},
		"/nodes":                     {c.node.ID(), "alive"},
		"/nodes/" + c.node.ID():      {"Memtables", "Data folder", "Drain this node"},
		"/tables":                    {`<a href="/tables/web">web</a>`, "stele table undrop gone", "Reads/s"},
		"/tables?q=none":             {"No table has “none” in its name", `!href="/tables/web"`},
		"/tables/web":                {"<td>none</td>", "<i>first</i>", "Compact", "Rows read/s"},
		"/tables/web/row":            {"com.example", "value of com.example"},
		"/tables/web/row?prefix=org": {"No row is in this range"},
		"/backups":                   {"web"},
		"/jobs":                      {"<h1>Jobs</h1>"},
		"/clusters":                  {"this one", "healthy", "stele cluster add"},
		"/users":                     {"This cluster is open", "There are no users and rights"},
		"/quotas":                    {"There is no quota"},
		"/signin":                    {"healthy"}, // there is nothing to sign in to
	} {
		p := v.get(path)
		p.want(t, http.StatusOK, texts...)
		if policy := p.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'self'; style-src 'self'") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if strings.Contains(p.text, "style=") || strings.Contains(p.text, "onclick") {
			t.Errorf("%s has a style or a script that its policy forbids:\n%s", path, p.text)
		}
	}
	for path, status := range map[string]int{
		"/traces/x": 404, "/traces/" + traceID: 404, "/nope": 404, "/tables/none": 404, "/nodes/none": 404, "/tables/web/row?versions=x": 400, "/tables/web/row?as=x": 400, `/tables/web/row?key=\q`: 400, "/assets/": 404, "/assets/none.js": 404,
	} {
		v.get(path).want(t, status)
	}
}

const traceID = "0af7651916cd43dd8448eb211c80319c"

// TestTracePage: the page of a trace has its requests, below those that caused them, with what they did.
func TestTracePage(t *testing.T) {
	c := startOpen(t)
	c.create("web", "com.example")
	ctx, _ := client.WithTraceparent(t.Context(), "00-"+traceID+"-b7ad6b7169203331-01")
	if err := c.admin.Table("web").Apply(ctx, client.NewRowMutation("<b>row").Set("f:q", nil)); err != nil {
		t.Fatal(err)
	}
	c.visitor(nil).get("/traces/"+traceID).want(t, http.StatusOK, "mutate", `<a href="/tables/web">`, "&lt;b&gt;row", "requested", "log replicas", "b7ad6b7169203331", "rows", "the last was <a href=\"/nodes/"+c.node.ID()+`">`, "!<b>row")
	c.visitor(nil).get("/requests").want(t, http.StatusOK, `<a href="/traces/`+traceID, "!<td>mutate</td><td>web</td>") // METADATA may not have been served at first
}

// TestErrors: requests that failed are on the page of requests, and their messages are text.
func TestErrors(t *testing.T) {
	c := startOpen(t)
	c.create("web")
	for range 2 {
		if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation("r").Set("<b>none:q", nil)); err == nil {
			t.Fatal("a family that does not exist was written")
		}
	}
	c.visitor(nil).get("/requests").want(t, http.StatusOK, `<td class="n">2</td><th scope="row">family_not_found</th><td>mutate</td><td>web</td>`, "!<b>none")
}

// TestHostileRows: row keys, columns and values are text, whatever they have in them.
func TestHostileRows(t *testing.T) {
	const script = `</td><script>document.title='owned'</script><img src=x onerror=alert(1)>`
	c := startOpen(t)
	c.create("web")
	m := client.NewRowMutation(script+"\x00\xff").Set("f:"+script, []byte(script)).Set("f:json", []byte(`{"a":"`+"<script>"+`"}`)).Set("f:binary", []byte{0, 1, 0xff})
	if err := c.admin.Table("web").Apply(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	v := c.visitor(nil)
	for _, as := range []string{"auto", "text", "JSON", "int64", "MessagePack", "hex"} {
		v.get("/tables/web/row?as="+as).want(t, http.StatusOK, "!<script>document", "!<img", `\x00\xff`)
	}
	v.get("/tables?q="+url.QueryEscape(script)).want(t, http.StatusOK, "!<script>document")
	v.get("/tables/"+url.PathEscape(script)).want(t, http.StatusNotFound, "!<script>document")
	v.get("/"+url.PathEscape(script)).want(t, http.StatusNotFound, "!<script>document")
}

// TestVersions: the versions of a column are side by side, newest first, with their changes, and the page of rows has their address.
func TestVersions(t *testing.T) {
	c := startOpen(t)
	c.create("web")
	for i, v := range []string{"<b>red</b> fox", "<b>red</b> fox", "<b>blue</b> fox jumps"} {
		if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation("r\x00").SetAt("f:\xff", int64(i+1), []byte(v))); err != nil {
			t.Fatal(err)
		}
	}
	v := c.visitor(nil)
	const page = "/tables/web/versions"
	v.get("/tables/web/row").want(t, http.StatusOK, page+`?as=auto&amp;column=f%3A%5Cxff&amp;row=r%5Cx00`)
	p := v.get(page + `?column=f%3A%5Cxff&row=r%5Cx00`)
	p.want(t, http.StatusOK, `<pre>&lt;b&gt;<del>red</del><ins>blue</ins>&lt;/b&gt; fox<ins> jumps</ins></pre>`, `<span class="time">3</span></th><th scope="col"><span class="time">2</span>`, "!<b>red")
	if strings.Count(p.text, "same value") != 1 || strings.Count(p.text, "<pre>") != 3 {
		t.Errorf("versions:\n%s", p.text)
	}
	v.get(page).want(t, http.StatusOK, "side by side")
	v.get(page+"?row=none&column=f:q").want(t, http.StatusOK, "no such column")
	for form, status := range map[string]int{"?row=r&column=f": 400, `?row=\q&column=f:q`: 400, "?row=r&column=f:q&as=x": 400} {
		v.get(page+form).want(t, status)
	}
	v.get("/tables/none/versions?row=r&column=f:q").want(t, http.StatusNotFound)
}

// TestCell: the whole value of a cell is sent as a file, or as a page that can do nothing; bad addresses are errors.
func TestCell(t *testing.T) {
	c := startOpen(t)
	c.create("web")
	page := "<html><script>alert(1)</script>" + strings.Repeat("x", 100<<10)
	if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation("r\x00").SetAt("f:\xff", 1000, []byte(page))); err != nil {
		t.Fatal(err)
	}
	v := c.visitor(nil)
	v.get("/tables/web/row").want(t, http.StatusOK, `/tables/web/cell?family=f&amp;qualifier=%5Cxff&amp;row=r%5Cx00&amp;timestamp=1000`, "more bytes")
	const cell = `/tables/web/cell?row=r\x00&qualifier=\xff&family=f&timestamp=`
	for as, kind := range map[string]string{"": "application/octet-stream", "&as=html": "text/html; charset=utf-8"} {
		p := v.get(cell + "1000" + as)
		if p.text != page || p.header.Get("Content-Type") != kind || !strings.HasPrefix(p.header.Get("Content-Security-Policy"), "sandbox; default-src 'none'") {
			t.Errorf("%q: %d bytes, %v", as, len(p.text), p.header)
		}
	}
	v.get(cell+"1001").want(t, http.StatusNotFound)
	v.get(cell+"x").want(t, http.StatusBadRequest)
	v.get("/tables/none/cell?row=r&family=f&timestamp=1").want(t, http.StatusNotFound)
}

// TestPagesOfRows: a page of rows has the address of the next, also after a key of any bytes.
func TestPagesOfRows(t *testing.T) {
	c := startOpen(t)
	var rows []string
	for i := range 60 {
		rows = append(rows, "r\x00"+string(rune('0'+i)))
	}
	c.create("web", rows...)
	v, path, seen := c.visitor(nil), "/tables/web/row?prefix=r", 0
	for range 3 {
		p := v.get(path)
		p.want(t, http.StatusOK)
		seen += strings.Count(p.text, `scope="rowgroup"`)
		_, rest, more := strings.Cut(p.text, `<p class="pages"><a href="`)
		if !more {
			break
		}
		next, _, _ := strings.Cut(rest, `"`)
		path = "/tables/web/row" + strings.ReplaceAll(next, "&amp;", "&")
	}
	if seen != len(rows) {
		t.Errorf("%d rows, want %d", seen, len(rows))
	}
}

// TestActions: a tablet is split, compacted and merged, and a node drained, from the pages; a mistake is shown as one.
func TestActions(t *testing.T) {
	c := startOpen(t)
	c.create("web", "a", "b", "c", "d")
	v := c.visitor(nil)
	id := func() string {
		_, rest, _ := strings.Cut(v.get("/tables/web").text, `<details id="tablet-`)
		id, _, _ := strings.Cut(rest, `"`)
		return "/tables/web/tablets/" + id
	}
	v.post(id()+"/compact", nil).want(t, http.StatusOK, "<td>none</td>")
	v.post(id()+"/split", nil).want(t, http.StatusOK, "1 to 2 of 2")
	v.get("/tables/web?from=1").want(t, http.StatusOK, "2 to 2 of 2", `/compact?from=1"`)
	v.post(id()+"/compact?from=1", nil).want(t, http.StatusOK, "2 to 2 of 2")
	v.post(id()+"/merge", nil).want(t, http.StatusOK, "1 to 1 of 1")
	v.post(id()+"/move", url.Values{"node": {"none"}}).want(t, http.StatusNotFound, "none")
	v.post("/tables/web/tablets/x/split", nil).want(t, http.StatusBadRequest, "The id of a tablet is a number")
	v.post("/tables/web/tablets/999/split", nil).want(t, http.StatusBadGateway)
	v.get(id()).want(t, http.StatusOK, "History", "merged", "split")
	v.get("/tables/METADATA/tablets/x").want(t, http.StatusBadRequest)
	v.get("/tables/web/tablets/999").want(t, http.StatusNotFound, "no tablet 999")
	v.post("/nodes/"+c.node.ID()+"/drain", nil).want(t, http.StatusOK, "End the drain")
	v.post("/nodes/"+c.node.ID()+"/undrain", nil).want(t, http.StatusOK, "Drain this node")
	v.post("/nodes/none/drain", nil).want(t, http.StatusNotFound)
	v.post("/nodes/"+c.node.ID()+"/drain", url.Values{"x": {strings.Repeat("x", 20<<10)}}).want(t, http.StatusRequestEntityTooLarge)
}

// TestOtherSites: a form of another site's page is rejected.
func TestOtherSites(t *testing.T) {
	c := startOpen(t)
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := good(http.NewRequestWithContext(t.Context(), http.MethodPost, c.address("/nodes/"+c.node.ID()+"/drain"), nil))
		r.Header.Set(header, value)
		c.visitor(nil).do(r).want(t, http.StatusForbidden)
	}
	c.visitor(nil).get("/nodes/"+c.node.ID()).want(t, http.StatusOK, "Drain this node")
}

// TestLive: a page is sent again when it has changed.
func TestLive(t *testing.T) {
	c := startOpen(t)
	v := c.visitor(nil)
	r := good(http.NewRequestWithContext(t.Context(), http.MethodGet, c.address("/tables"), nil))
	r.Header.Set("Accept", "text/event-stream")
	answer, err := v.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	c.create("later")
	var got strings.Builder
	for b := make([]byte, 4096); !strings.Contains(got.String(), "/tables/later"); {
		n, err := answer.Body.Read(b)
		if got.Write(b[:n]); err != nil {
			t.Fatalf("%v after\n%s", err, got.String())
		}
	}
	if !strings.Contains(got.String(), "event: page\ndata: ") {
		t.Errorf("not an event:\n%s", got.String())
	}
}
