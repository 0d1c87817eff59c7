package monitor

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits of the port for metrics, health and profiles, for all clients, authenticated or not.
const (
	// headerTime and headerBytesMax bound a request's header; net/http reads up to 4 KiB more. An access token has 100 bytes.
	headerTime     = 10 * time.Second
	headerBytesMax = 16 << 10
	// idleTime is how long a connection waits for the next request. Scrapers come back each minute, or sooner.
	idleTime = 2 * time.Minute
	// readPause is how long a client may take for the next pieceBytes of an answer, and answerTime for all of it, in addition to the duration
	// of a requested profile. A trace stays in memory while the client does not read it.
	readPause  = 10 * time.Second
	pieceBytes = 64 << 10
	answerTime = time.Minute
	// connsMax bounds connections: each takes up to 100 KiB, with a header and TLS. Scrapers and health checks need a few.
	connsMax = 64
	// metricsAtOnce bounds concurrent pages of metrics: a compressed one takes 1 MiB.
	metricsAtOnce = 4
	// profilesAtOnce bounds concurrent profiles, whose memory depends on their content. profileTimeMax bounds the duration of one, and profileTime
	// is the default.
	profilesAtOnce = 2
	profileTimeMax = 10 * time.Minute
	profileTime    = 30 * time.Second
	profilesPath   = "/debug/pprof/"
)

// bound bounds what clients can take of a server. A POST may have a body of formBytesMax, other requests none. refused is called for connections
// that are closed to admit others.
func bound(s *http.Server, formBytesMax int64, log *slog.Logger, refused func(net.Addr, error)) {
	s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes = headerTime, idleTime, headerBytesMax
	s.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	s.ConnState = newConns(connsMax, refused).note
	h := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not Server.WriteTimeout, which applies to all answers: it would cut long profiles, or be too long for others.
		paced := &pacedWriter{ResponseWriter: w, to: http.NewResponseController(w), until: time.Now().Add(answerTime)}
		paced.pace()
		defer paced.pace() // for buffered bytes
		if r.Method == http.MethodPost && 0 <= r.ContentLength && r.ContentLength <= formBytesMax {
			_ = paced.to.SetReadDeadline(time.Now().Add(headerTime))
		} else if r.ContentLength != 0 {
			// The server would read the rest of the body before it answers.
			_ = paced.to.SetReadDeadline(time.Now())
			http.Error(paced, fmt.Sprintf("no page takes this body: only a form of at most %d bytes", formBytesMax), http.StatusRequestEntityTooLarge)
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

// profileTimeOf returns the duration of the requested profile, parsed as package pprof does.
func profileTimeOf(r *http.Request) (time.Duration, error) {
	seconds, _ := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
	if seconds > profileTimeMax.Seconds() {
		return 0, fmt.Errorf("profile of %.0f seconds requested, the limit is %.0f", seconds, profileTimeMax.Seconds())
	}
	return max(profileTime, time.Duration(seconds*float64(time.Second))), nil
}

// few limits the concurrent requests of a handler.
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

// pacedWriter aborts an answer that its client does not read.
type pacedWriter struct {
	http.ResponseWriter
	to    *http.ResponseController
	until time.Time
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *pacedWriter) Write(p []byte) (n int, err error) {
	for piece := p; len(piece) > 0 && err == nil; piece = p[n:] {
		var m int
		w.pace()
		m, err = w.ResponseWriter.Write(piece[:min(len(piece), pieceBytes)])
		n += m
	}
	return n, err
}

func (w *pacedWriter) pace() {
	until := time.Now().Add(readPause)
	if w.until.Before(until) {
		until = w.until
	}
	_ = w.to.SetWriteDeadline(until)
}
