package console

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"
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
	tick := time.NewTicker(livePause)
	defer tick.Stop()
	for end := time.Now().Add(liveTime); time.Now().Before(end); {
		now, err := c.liveBody(q, p)
		if err == nil && !bytes.Equal(now, last) {
			if last != nil { // the browser has the first one, as a page
				err = sendEvent(w, now)
			}
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
		select {
		case <-tick.C:
		case <-q.r.Context().Done():
			return
		}
	}
}

var errStatic = &pageError{http.StatusNotFound, "This page is not live."}

// liveBody renders the main part of a page.
func (c *Console) liveBody(q *query, p page) ([]byte, error) {
	x, err := c.make(q.r.Context(), q, p)
	if err != nil {
		return nil, err
	}
	if x.Static {
		return nil, errStatic
	}
	var b bytes.Buffer
	err = templates.ExecuteTemplate(&b, x.Template, x)
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
