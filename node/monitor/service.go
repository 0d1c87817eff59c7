package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/metric"
)

// Config has what the service needs of the node.
type Config struct {
	Background *sync.WaitGroup // of the node's goroutines
	Log        *slog.Logger
	Name       string // the node's
	Version    string // the program's
	Began      time.Time

	// HTTP is the address of the port; "off" means none. Profiles is where profiles are served, besides a port with TLS: ProfilesOnHTTP, or
	// the absolute path of a socket that only the node's user may open. Empty: nowhere else.
	HTTP, Profiles string
	// Advertise is the address of the node for others, host or host:port; it may be empty.
	Advertise string

	// Transport returns how the node authenticates its peers; nil on an open node.
	Transport func() *certs.Transport
	// Authenticate checks an access token, and adds its user to the caller.
	Authenticate func(ctx context.Context, caller *authz.Subject, text string) error
	Authz        *authz.Authorizer
	// Console serves all other pages; nil: there are none. It authenticates its users. FormBytesMax bounds the bodies of requests to it.
	Console      http.Handler
	FormBytesMax int64
	// Refused is called for connections that are rejected or closed to admit others.
	Refused func(from net.Addr, err error)

	// Err returns why the node failed, and Unready why it does not serve, or "". CheckServing returns an error for calls that come before it
	// serves.
	Err          func() error
	Unready      func() string
	CheckServing func() error
	// Parts returns the parts to probe, and Collectors those that have metrics now.
	Parts      func() []Part
	Collectors func() []Collector
}

// Collector is a part of the node that has metrics.
type Collector interface{ Collect(m metric.Sender) }

// Service serves metrics, health and profiles.
type Service struct {
	Config
	signs signs
	addr  net.Addr     // nil without a port
	http  *http.Server // nil without a port
	// profiles is nil unless profiles are served on a socket.
	profiles *http.Server
}

// New returns a service that serves nothing before Serve.
func New(cfg Config) *Service { return &Service{Config: cfg} }

// Serve opens the port, and the socket of profiles.
func (sv *Service) Serve() error { return errors.Join(sv.serveHTTP(), sv.serveProfiles()) }

// Addr returns the address of the port, or "" if there is none.
func (sv *Service) Addr() string {
	if sv.addr == nil {
		return ""
	}
	return sv.addr.String()
}

// Close closes the port and the socket, and all their connections.
func (sv *Service) Close() error {
	var errs []error
	for _, s := range []*http.Server{sv.http, sv.profiles} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// serveHTTP serves metrics, health and profiles.
func (sv *Service) serveHTTP() error {
	if sv.HTTP == "off" {
		return nil
	}
	l, err := net.Listen("tcp", sv.HTTP)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	sv.addr = l.Addr()
	l = sv.handle(l)
	bound(sv.http, sv.FormBytesMax, sv.Log, sv.Refused)
	sv.Background.Go(func() {
		if err := sv.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			sv.Log.Error("HTTP server failed", "err", err)
		}
	})
	return nil
}

// handle creates the server of a listener, and returns the listener to serve.
func (sv *Service) handle(l net.Listener) net.Listener {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", sv.guarded(promhttp.HandlerFor(sv.Registry(), promhttp.HandlerOpts{MaxRequestsInFlight: metricsAtOnce})))
	mux.HandleFunc("GET /healthz", sv.live)
	mux.HandleFunc("GET /readyz", sv.ready)
	if sv.Console != nil {
		mux.Handle("/", sv.Console) // it authenticates its users
	}
	transport := sv.Transport()
	plain := transport.ServesPlain(l)
	if !plain || sv.Profiles == ProfilesOnHTTP {
		mux.Handle("GET "+profilesPath, sv.guarded(profiles()))
	}
	sv.http = &http.Server{Handler: mux}
	if plain {
		sv.http.Handler = checkHost(mux, sv.hosts())
	}
	return transport.GuardHTTP(l, sv.http, connsMax/2, sv.Refused)
}

// live reports liveness: 200 unless the process has failed. A node that starts, stops or has lost the lock service recovers by
// itself, and a restart would only delay it.
func (sv *Service) live(w http.ResponseWriter, _ *http.Request) {
	reason := ""
	if err := sv.Err(); err != nil {
		reason = err.Error()
	}
	answerHealth(w, reason)
}

// ready reports readiness: 200 while the node serves, otherwise 503 and the reason.
func (sv *Service) ready(w http.ResponseWriter, _ *http.Request) { answerHealth(w, sv.Unready()) }

func answerHealth(w http.ResponseWriter, reason string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, reason)
		return
	}
	fmt.Fprintln(w, "ok")
}
