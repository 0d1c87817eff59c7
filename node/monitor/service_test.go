package monitor

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestHealth: a node lives unless it has failed, and is ready while it serves.
func TestHealth(t *testing.T) {
	var failure error
	reason := "starting: waiting for other nodes"
	sv := New(Config{Err: func() error { return failure }, Unready: func() string { return reason }})
	ask := func(h http.HandlerFunc) (int, string) {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest("GET", "/", nil))
		return w.Code, w.Body.String()
	}
	want := func(what string, h http.HandlerFunc, code int, text string) {
		t.Helper()
		if got, body := ask(h); got != code || body != text+"\n" {
			t.Errorf("%s: %d %q, want %d %q", what, got, body, code, text)
		}
	}
	want("liveness of a node that waits for others", sv.live, http.StatusOK, "ok")
	want("its readiness", sv.ready, http.StatusServiceUnavailable, reason)
	reason = ""
	want("readiness of a node that serves", sv.ready, http.StatusOK, "ok")
	failure, reason = io.ErrUnexpectedEOF, "unexpected EOF"
	want("liveness of a node that has failed", sv.live, http.StatusServiceUnavailable, reason)
	want("its readiness", sv.ready, http.StatusServiceUnavailable, reason)
}

// TestAlive: the error names the part that does not answer, and no part has two probes at once.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var background sync.WaitGroup
		stuck, probes := make(chan struct{}), 0
		sv := New(Config{Background: &background, Err: func() error { return nil }, Parts: func() []Part {
			return []Part{
				{"the one", func(context.Context) error { return nil }},
				{"the other", func(context.Context) error { probes++; <-stuck; return io.ErrUnexpectedEOF }},
			}
		}})
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return sv.Alive(ctx)
		}
		for range 3 {
			err := ask()
			synctest.Wait()
			if err == nil || err.Error() != "no answer from the other" || probes != 1 {
				t.Errorf("a stuck part: %v after %d probes", err, probes)
			}
		}
		close(stuck)
		synctest.Wait()
		err := ask()
		synctest.Wait()
		if !errors.Is(err, io.ErrUnexpectedEOF) || probes != 2 {
			t.Errorf("a part that answers with an error: %v after %d probes", err, probes)
		}
		background.Wait()
	})
}
