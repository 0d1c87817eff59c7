package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"size": func(n int64) string { return text.Size(n) }, "count": text.Count, "plural": text.Plural, "bytes": text.Bytes,
	"key": keyText, "uptime": text.Uptime, "seconds": func(s float64) string { return text.Uptime(time.Duration(s * float64(time.Second))) },
	"moment": text.Moment, "msAgo": msAgo, "took": took, "mean": mean, "line": text.Escape, "callRate": callRate, "msIn": msIn, "percent": percent, "orUnknown": orUnknown, "sizeOrUnknown": sizeOrUnknown,
	"add": func(a, b int64) int64 { return a + b }, "inc": func(n int) int { return n + 1 }, "half": func(n int64) string { return text.Size(n / 2) },
}).ParseFS(templateFiles, "templates/*.html"))

// layout is what the frame around each page shows.
type layout struct {
	*content
	Node, Version string
	User          string // empty on an open cluster
	SignsIn       bool   // users have credentials
	Live          string // the address of the live page; empty: it is not live
	Sections      []section
}

// section is an entry of the navigation.
type section struct {
	Name, Path string
	Current    bool
}

var sections = []section{{Name: "Overview", Path: "/"}, {Name: "Nodes", Path: "/nodes"}, {Name: "Tables", Path: "/tables"}, {Name: "Requests", Path: "/requests"}, {Name: "Jobs", Path: "/jobs"}, {Name: "Backups", Path: "/backups"},
	{Name: "Users", Path: "/users"}, {Name: "Quotas", Path: "/quotas"}, {Name: "Audit", Path: "/audit"}, {Name: "Logs", Path: "/logs"}, {Name: "Clients", Path: "/clients"}, {Name: "Clusters", Path: "/clusters"}}

// user returns the name of a client's user; empty if it is unknown or there is none.
func user(ctx context.Context, c *client.Client) string {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	me, err := c.Whoami(ctx)
	if err != nil {
		return ""
	}
	return me.Name
}

// render answers a request with a page that needs nothing of the cluster.
func (c *Console) render(w http.ResponseWriter, r *http.Request, status int, x *content) {
	c.renderAs(w, r, status, x, "")
}

// renderAs is render for a user whose name is known.
func (c *Console) renderAs(w http.ResponseWriter, r *http.Request, status int, x *content, user string) {
	body, err := c.page(r, status, x, user)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, status, body)
}

// answer sends a page.
func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the browser may be gone
}

// errTemplate means that a page could not be made of its content.
var errTemplate = &pageError{http.StatusInternalServerError, "The page could not be made: see the node's log."}

// page returns a page of a content.
func (c *Console) page(r *http.Request, status int, x *content, user string) ([]byte, error) {
	l := &layout{content: x, Node: c.cfg.Node, Version: c.cfg.Version, User: user, SignsIn: c.cfg.SignIn != nil}
	if x.Section != "" && !x.Static && status == http.StatusOK {
		l.Live = r.URL.RequestURI()
	}
	for _, s := range sections {
		s.Current = s.Name == x.Section
		l.Sections = append(l.Sections, s)
	}
	var main, b bytes.Buffer
	err := templates.ExecuteTemplate(&main, x.Template, x)
	if err == nil {
		err = templates.ExecuteTemplate(&b, "layout.html", struct {
			*layout
			Main template.HTML
		}{l, template.HTML(main.String())}) // #nosec G203: html/template has made it
	}
	if err != nil {
		c.cfg.Log.Error("console page failed", "template", x.Template, "err", err)
		return nil, errTemplate
	}
	return b.Bytes(), nil
}

// failure is what the page of an error shows.
type failure struct {
	Text, Hint string
}

// fail answers a request with an error.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) { c.failAs(w, r, err, "") }

// failAs is fail for a user whose name is known.
func (c *Console) failAs(w http.ResponseWriter, r *http.Request, err error, user string) {
	status, f := failureOf(err)
	if live(r) {
		http.Error(w, f.Text, status)
		return
	}
	c.renderAs(w, r, status, &content{Title: "Error", Template: "error.html", Data: f}, user)
}

// failureOf returns the HTTP status of an error, and what people read.
func failureOf(err error) (status int, f failure) {
	var own *pageError
	f.Text = err.Error()
	switch {
	case errors.As(err, &own):
		return own.status, f
	case errors.Is(err, api.ErrUnauthenticated):
		return http.StatusUnauthorized, f
	case errors.Is(err, client.ErrPermission):
		f.Hint = "Ask an administrator of the cluster for the right (stele acl grant)."
		return http.StatusForbidden, f
	case errors.Is(err, client.ErrNoTable), errors.Is(err, client.ErrNodeNotFound):
		return http.StatusNotFound, f
	case errors.Is(err, client.ErrTabletBusy), errors.Is(err, client.ErrConflict):
		f.Hint = "Something else changes it now, or has changed it meanwhile. Look at the page again before you repeat it."
		return http.StatusConflict, f
	case errors.Is(err, api.ErrOverloaded):
		f.Hint = "The node has more to do than it can. Try again in a moment."
		return http.StatusServiceUnavailable, f
	case errors.Is(err, context.DeadlineExceeded):
		f.Text, f.Hint = "The cluster did not answer in time: "+f.Text, "Try the console of another node. The overview shows what is wrong."
		return http.StatusGatewayTimeout, f
	}
	return http.StatusBadGateway, f
}
