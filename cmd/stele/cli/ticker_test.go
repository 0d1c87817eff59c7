package cli

import (
	"strings"
	"testing"
	"time"
)

// Without a terminal, progress is printed as plain lines until stop is called.
func TestTickerWithoutTerminal(t *testing.T) {
	a, _, errs := testApp()
	shown := make(chan struct{})
	n := 0
	stop := a.startTickerEvery(time.Millisecond, func() string {
		if n++; n == 3 {
			close(shown)
		}
		return Plural(int64(n), "row") + " so far"
	})
	<-shown
	stop()
	stop()
	if got := errs.String(); !strings.HasPrefix(got, "1 row so far\n2 rows so far\n3 rows so far\n") {
		t.Errorf("%q", got)
	}
}
