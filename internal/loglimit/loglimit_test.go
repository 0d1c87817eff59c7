package loglimit

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWarner: at most Most warnings are logged per period, and the next one has the number
// suppressed.
func TestWarner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		var w Warner
		for range 10 * Most {
			w.Warn(log, "stranger", "from", "x")
		}
		if n := strings.Count(text.String(), "msg=stranger from=x\n"); n != Most {
			t.Errorf("logged %d times:\n%s", n, text.String())
		}
		text.Reset()
		time.Sleep(Period)
		w.Warn(log, "stranger")
		w.Warn(log, "stranger")
		if got := text.String(); strings.Count(got, "msg=stranger") != 2 || strings.Count(got, "suppressed=180\n") != 1 {
			t.Errorf("then:\n%s", got)
		}
	})
}

// TestOnChange: a failure that repeats is logged once, and again after a success.
func TestOnChange(t *testing.T) {
	var b strings.Builder
	log := slog.New(slog.NewTextHandler(&b, nil))
	var o OnChange
	for _, text := range []string{"one", "one", "two", "", "two"} {
		var err error
		if text != "" {
			err = errors.New(text)
		}
		o.WarnError(log, "failed", err)
	}
	if got := strings.Count(b.String(), "\n"); got != 3 {
		t.Errorf("logged %d lines, want 3:\n%s", got, b.String())
	}
}

// TestByReason: each text is logged once a minute, from any peer.
func TestByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		log := slog.New(slog.NewTextHandler(&b, nil))
		var r ByReason
		for range 3 {
			r.WarnError(log, "rejected", errors.New("one"), "peer", "a")
			r.WarnError(log, "rejected", errors.New("one"), "peer", "b")
			r.WarnError(log, "rejected", errors.New("two"), "peer", "b")
		}
		if got := strings.Count(b.String(), "\n"); got != 2 {
			t.Errorf("logged %d lines, want 2:\n%s", got, b.String())
		}
		time.Sleep(reasonPeriod)
		r.WarnError(log, "rejected", errors.New("one"))
		if got := strings.Count(b.String(), "\n"); got != 3 {
			t.Errorf("logged %d lines after a minute, want 3", got)
		}
		for i := range 2 * Most {
			r.WarnError(log, "rejected", fmt.Errorf("reason %d", i))
		}
		if got := strings.Count(b.String(), "\n"); got != Most+2 { // the first two were of the minute before
			t.Errorf("logged %d lines, want %d", got, Most+2)
		}
	})
}
