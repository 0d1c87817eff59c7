package console

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
)

const (
	// FormBytesMax bounds the body of a request.
	FormBytesMax = 16 << 10
	// pagesAtOnce bounds the pages that are rendered at once: one takes up to 20 MiB, for a table of many tablets.
	pagesAtOnce = 8
	// cellsAtOnce bounds the cells that are sent whole, each of at most cellBytesMax.
	cellsAtOnce = 4
	// livesMax bounds live pages, each of which has a connection. The port has 64.
	livesMax = 24
	// liveTime is how long a live page is sent before the browser connects again, and livePause the time between two; it is liveShare times as long as
	// it took to make the page, if that is more, but a stream that begins sends the page at once: pages of many tablets cost other nodes time, too.
	liveTime, livePause = 50 * time.Second, 5 * time.Second
	liveShare           = 300
	// pageTimeout bounds the requests for one page.
	pageTimeout = 10 * time.Second
)

// Config is what the console needs.
type Config struct {
	Log *slog.Logger
	// Node and Version are shown on each page.
	Node, Version string
	// Open returns a client of the request's user, and the function that releases it. An error with api.ErrUnauthenticated means that the user has
	// to sign in.
	Open func(*http.Request) (c *client.Client, release func(), err error)
	// SignIn verifies an access token and lets the browser keep it. It is nil if users have no credentials.
	SignIn func(w http.ResponseWriter, r *http.Request, token string) error
	// SignOut makes the browser forget it.
	SignOut func(w http.ResponseWriter, r *http.Request)
}

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	cfg     Config
	mux     *http.ServeMux
	pages   chan struct{} // has a place for each page that is rendered
	lives   chan struct{} // has a place for each live page
	cells   chan struct{} // has a place for each whole cell that is sent
	handler http.Handler
}

//go:embed assets
var assets embed.FS

// New returns a console.
func New(cfg Config) *Console {
	c := &Console{cfg: cfg, mux: http.NewServeMux(), pages: make(chan struct{}, pagesAtOnce), lives: make(chan struct{}, livesMax), cells: make(chan struct{}, cellsAtOnce)}
	c.route()
	c.handler = http.NewCrossOriginProtection().Handler(c.mux)
	return c
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, FormBytesMax)
	c.handler.ServeHTTP(w, r)
}

// policy is the Content-Security-Policy of all pages.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'"

// route registers the pages.
func (c *Console) route() {
	files, _ := fs.Sub(assets, "assets")
	static := http.StripPrefix("/assets/", http.FileServerFS(files))
	c.mux.HandleFunc("GET /assets/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") { // no lists of files
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "max-age=3600")
		static.ServeHTTP(w, r)
	})
	c.mux.HandleFunc("GET /signin", c.showSignIn)
	c.mux.HandleFunc("POST /signin", c.signIn)
	c.mux.HandleFunc("POST /signout", c.signOut)
	for path, p := range map[string]page{
		"/{$}":                         overviewPage,
		"/nodes":                       nodesPage,
		"/nodes/{node}":                nodePage,
		"/tables":                      tablesPage,
		"/tables/{table}":              tablePage,
		"/tables/{table}/row":          rowsPage,
		"/tables/{table}/versions":     versionsPage,
		"/tables/{table}/keys":         keysPage,
		"/tables/{table}/tablets/{id}": tabletPage,
		"/requests":                    requestsPage,
		"/traces/{id}":                 tracePage,
		"/backups":                     backupsPage,
		"/clusters":                    clustersPage,
		"/jobs":                        jobsPage,
		"/audit":                       auditPage,
		"/logs":                        logsPage,
		"/clients":                     clientsPage,
		"/users":                       usersPage,
		"/quotas":                      quotasPage,
	} {
		c.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, p) })
	}
	c.mux.HandleFunc("GET /tables/{table}/cell", c.serveCell)
	for path, a := range map[string]action{
		"/nodes/{node}/drain": drain, "/nodes/{node}/undrain": undrain,
		"/jobs/{job}/pause": jobAction(health.JobPause), "/jobs/{job}/resume": jobAction(health.JobResume), "/jobs/{job}/cancel": jobAction(health.JobCancel),
		"/tables/{table}/tablets/{id}/split": splitTablet, "/tables/{table}/tablets/{id}/merge": mergeTablet,
		"/tables/{table}/tablets/{id}/move": moveTablet, "/tables/{table}/tablets/{id}/compact": compactTablet,
	} {
		c.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { c.act(w, r, a) })
	}
	c.mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, &pageError{http.StatusNotFound, "There is no page " + r.URL.Path + "."})
	})
}

// page makes what a page shows. Errors: those of the client, *pageError.
type page func(ctx context.Context, q *query) (*content, error)

// query is a request for a page, with a client of its user.
type query struct {
	*client.Client
	r *http.Request
}

// content is what a page shows: data, by the template of a name.
type content struct {
	Title    string
	Template string
	Section  string // of the navigation
	Data     any
	Static   bool // the page is not kept up to date
}

// pageError is an error that is not of the cluster.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

// open opens a client for a request, or answers the request and returns nil.
func (c *Console) open(w http.ResponseWriter, r *http.Request) (*client.Client, func()) {
	cl, release, err := c.cfg.Open(r)
	switch {
	case err == nil:
		return cl, release
	case errors.Is(err, api.ErrUnauthenticated) && c.cfg.SignIn != nil && !live(r):
		to := r.URL.RequestURI()
		if r.Method == http.MethodPost { // no page has the address of an action
			to = "/"
		}
		http.Redirect(w, r, "/signin?to="+url.QueryEscape(to), http.StatusSeeOther)
	default:
		c.fail(w, r, err)
	}
	return nil, nil
}

// serve answers a request for a page.
func (c *Console) serve(w http.ResponseWriter, r *http.Request, p page) {
	cl, release := c.open(w, r)
	if cl == nil {
		return
	}
	defer release()
	if live(r) {
		c.serveLive(w, &query{cl, r}, p)
		return
	}
	var body []byte
	err := c.inPlace(func() error {
		x, err := c.make(r.Context(), &query{cl, r}, p)
		if err == nil {
			body, err = c.page(r, http.StatusOK, x, user(r.Context(), cl))
		}
		return err
	})
	if err != nil {
		name := ""
		if errors.Is(err, client.ErrPermission) { // the user may want to sign out, and in as another
			name = user(r.Context(), cl)
		}
		c.failAs(w, r, err, name)
		return
	}
	answer(w, http.StatusOK, body)
}

// errCrowded rejects a page if too many are rendered.
var errCrowded = &pageError{http.StatusServiceUnavailable, "Too many pages are being made at this node. Try again in a moment, or at another node."}

// inPlace makes a page while fewer than pagesAtOnce are made. It does not send it: that may take as long as the browser likes.
func (c *Console) inPlace(do func() error) error {
	select {
	case c.pages <- struct{}{}:
		defer func() { <-c.pages }()
		return do()
	default:
		return errCrowded
	}
}

// make makes what a page shows. It is called in a place.
func (c *Console) make(ctx context.Context, q *query, p page) (*content, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return p(ctx, q)
}
