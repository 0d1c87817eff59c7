package seldom

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWarner: of many warnings some are said in each period, and how many were not.
func TestWarner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		log := slog.New(slog.NewTextHandler(&text, nil))
		var w Warner
		for range 10 * Most {
			w.Warn(log, "stranger", "from", "x")
		}
		if n := strings.Count(text.String(), "msg=stranger from=x\n"); n != Most {
			t.Errorf("said %d times:\n%s", n, text.String())
		}
		text.Reset()
		time.Sleep(Period)
		w.Warn(log, "stranger")
		w.Warn(log, "stranger")
		if got := text.String(); strings.Count(got, "msg=stranger") != 2 || strings.Count(got, "unsaid_before=180\n") != 1 {
			t.Errorf("then:\n%s", got)
		}
	})
}
