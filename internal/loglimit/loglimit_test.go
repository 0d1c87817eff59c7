package loglimit

import (
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
