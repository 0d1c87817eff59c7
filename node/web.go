package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// What the port for metrics, health and profiles takes of whoever reaches it, authenticated or not.
const (
	// webHeaderTime is for a request's header, of at most so many bytes, 4 KiB more at times: an access token has 100.
	webHeaderTime     = 10 * time.Second
	webHeaderBytesMax = 16 << 10
	// webIdleTime is how long a connection waits for the next request. Who collects metrics comes back each minute, or sooner.
	webIdleTime = 2 * time.Minute
	// webPause is how long a client may take for the next webPieceBytes of an answer, and webAnswerTime for all of it, beside the
	// time that a profile is asked for. What is traced while a client takes nothing stays in memory.
	webPause      = 10 * time.Second
	webPieceBytes = 64 << 10
	webAnswerTime = time.Minute
	// webConnsMax bounds connections: each takes up to 100 KiB, with a header and TLS. Who collects metrics, and asks for
	// health, needs a few.
	webConnsMax = 64
	// metricsAtOnce bounds pages of metrics: one that is compressed takes 1 MiB.
	metricsAtOnce = 4
	// profilesAtOnce bounds profiles, which take the more memory the more there is to tell; profileTimeMax is how long one lasts,
	// and profileTime how long that does whose time is not said.
	profilesAtOnce = 2
	profileTimeMax = 10 * time.Minute
	profileTime    = 30 * time.Second
	profilesPath   = "/debug/pprof/"
)

// serveHTTP serves metrics, health and profiles.
func (n *Node) serveHTTP() error {
	if n.cfg.HTTP == "off" {
		return nil
	}
	l, err := net.Listen("tcp", n.cfg.HTTP)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	n.webAddr = l.Addr()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.registry(), promhttp.HandlerOpts{MaxRequestsInFlight: metricsAtOnce}))
	mux.HandleFunc("GET /healthz", n.live)
	mux.HandleFunc("GET /readyz", n.ready)
	plain := n.security.plainHTTP(l)
	if !plain || n.cfg.Profiles == ProfilesOnHTTP {
		mux.Handle("GET "+profilesPath, profiles())
	}
	n.http = &http.Server{Handler: mux}
	if plain {
		n.http.Handler = checkHost(mux, n.webHosts())
	} else {
		l = n.security.guardHTTP(l, n.http, n.refuseConn, n.mayLook, "/healthz", "/readyz")
	}
	boundWeb(n.http, n.log, n.refuseConn)
	n.background.Go(func() {
		if err := n.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("serve HTTP", "error", err)
		}
	})
	return nil
}

// boundWeb bounds what a server takes of its clients. Refused is told why a connection is ended to make room.
func boundWeb(s *http.Server, log *slog.Logger, refused func(net.Addr, error)) {
	s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes = webHeaderTime, webIdleTime, webHeaderBytesMax
	s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	s.ConnState = newWebConns(webConnsMax, refused).note
	h := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not Server.WriteTimeout, which is one for all answers: it would cut those that go on for long, or let others.
		paced := &pacedWriter{ResponseWriter: w, to: http.NewResponseController(w), until: time.Now().Add(webAnswerTime)}
		paced.pace()
		defer paced.pace() // for what is still in buffers
		if r.ContentLength != 0 {
			// The server would wait for the rest of it before it answers.
			_ = paced.to.SetReadDeadline(time.Now())
			http.Error(paced, "no page takes a body", http.StatusRequestEntityTooLarge)
			return
		}
		if strings.HasPrefix(r.URL.Path, profilesPath) {
			d, err := profileTimeOf(r)
			if err != nil {
				http.Error(paced, err.Error(), http.StatusBadRequest)
				return
			}
			paced.until = paced.until.Add(d)
		}
		h.ServeHTTP(paced, r)
	})
}

// profileTimeOf returns how long a profile is asked for at most, as package pprof reads it.
func profileTimeOf(r *http.Request) (time.Duration, error) {
	seconds, _ := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	if seconds > profileTimeMax.Seconds() {
		return 0, fmt.Errorf("a profile of %.0f seconds is asked for, at most %.0f", seconds, profileTimeMax.Seconds())
	}
	return max(profileTime, time.Duration(seconds*float64(time.Second))), nil
}

// few has a handler answer few requests at once.
func few(h http.Handler) http.Handler {
	places := make(chan struct{}, profilesAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			h.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "10")
			http.Error(w, fmt.Sprintf("%d profiles are being made, the most at once", profilesAtOnce), http.StatusServiceUnavailable)
		}
	})
}

// pacedWriter gives an answer up whose client does not take it.
type pacedWriter struct {
	http.ResponseWriter
	to    *http.ResponseController
	until time.Time
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	for piece := p; len(piece) > 0 && err == nil; piece = p[n:] {
		var m int
		w.pace()
		m, err = w.ResponseWriter.Write(piece[:min(len(piece), webPieceBytes)])
		n += m
	}
	return n, err
}

func (w *pacedWriter) pace() {
	until := time.Now().Add(webPause)
	if w.until.Before(until) {
		until = w.until
	}
	_ = w.to.SetWriteDeadline(until)
}
