package console

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/steledb/stele/internal/timing"
)

// live reports whether a request is for a stream of the page's main part.
func live(r *http.Request) bool { return r.Header.Get("Accept") == "text/event-stream" }

// serveLive sends the main part of a page when it has changed, until liveTime has passed.
func (c *Console) serveLive(w http.ResponseWriter, q *query, p page) {
	select {
	case c.lives <- struct{}{}:
		defer func() { <-c.lives }()
	default:
		c.fail(w, q.r, errCrowded)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // for proxies
	out := http.NewResponseController(w)
	var last []byte
	for end := time.Now().Add(liveTime); time.Now().Before(end); {
		began := time.Now()
		now, err := c.liveBody(q, p)
		pause := max(livePause, liveShare*time.Since(began))
		if err == nil && !bytes.Equal(now, last) {
			err = sendEvent(w, now) // the first one, too: it may have changed since the page was made, or the stream before has ended
			last = now
		} else if err == nil {
			_, err = fmt.Fprint(w, ": unchanged\n\n") // reveals that the browser is gone
		}
		if err != nil && !errors.Is(err, errCrowded) {
			return
		}
		if out.Flush() != nil {
			return
		}
		if timing.Sleep(q.r.Context(), min(pause, time.Until(end))) != nil {
			return
		}
	}
}

var errStatic = &pageError{http.StatusNotFound, "This page is not live."}

// liveBody renders the main part of a page.
func (c *Console) liveBody(q *query, p page) ([]byte, error) {
	var b bytes.Buffer
	err := c.inPlace(func() error {
		x, err := c.make(q.r.Context(), q, p)
		if err != nil {
			return err
		}
		if x.Static {
			return errStatic
		}
		return templates.ExecuteTemplate(&b, x.Template, x)
	})
	return b.Bytes(), err
}

// sendEvent sends an event named page. Each line of its data has a prefix.
func sendEvent(w http.ResponseWriter, data []byte) error {
	var b bytes.Buffer
	b.WriteString("event: page\n")
	for line := range bytes.Lines(data) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}
