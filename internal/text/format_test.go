package text

import (
	"testing"
	"time"
)

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"1 day": Plural(1, "day"), "2 days": Plural(2, "day"), "3 families": Plural(3, "family"), "0 rows": Plural(0, "row"), "2 replies": Plural(2, "reply"),
		"2 days 3h 4m": Uptime(51*time.Hour + 4*time.Minute), "2h 0m": Uptime(2 * time.Hour), "9s": Uptime(9 * time.Second), "12m": Uptime(12 * time.Minute), "3m 5s": Uptime(3*time.Minute + 5*time.Second), "1h 0m": Uptime(time.Hour - time.Millisecond),
		"0.25 ms": Duration(250 * time.Microsecond), "0 ms": Millis(0), "<0.01 ms": Millis(0.0049), "0.01 ms": Millis(0.005), "2.1 s": Duration(2100 * time.Millisecond), "1m": Duration(time.Minute),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
