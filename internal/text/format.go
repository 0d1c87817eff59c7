// Package text writes figures, timestamps and bytes for people: in the output of commands, and in pages of the console. It starts no
// goroutine. The paper has no such part.
package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size formats n bytes with a binary unit.
func Size(n int64) string {
	const step = 1024
	if n < step && n > -step {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n)/step, 0
	for math.Abs(v) >= 999.5 && unit < 4 {
		v /= step
		unit++
	}
	digits := 1
	if v == math.Trunc(v) || math.Abs(v) >= 99.95 {
		digits = 0
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + []string{"KiB", "MiB", "GiB", "TiB", "PiB"}[unit]
}

// Count formats n with thousands separators.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Plural returns "1 row", "2 rows", "3 families", "4 days".
func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "y"); ok && strings.TrimRight(stem, "aeou") == stem {
		return Count(n) + " " + stem + "ies"
	}
	return Count(n) + " " + what + "s"
}

// Moment formats a timestamp, in microseconds since 1970, in UTC. Small numbers stay numbers: they are
// version numbers, not times.
func Moment(micros int64) string {
	const year = 365 * 24 * int64(time.Hour/time.Microsecond)
	if micros < year || micros > 8000*year {
		return strconv.FormatInt(micros, 10)
	}
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// Duration formats a duration: 0.25 ms, 16 ms, 2.1 s, and as Uptime from a minute on.
func Duration(d time.Duration) string {
	if d < time.Minute {
		return Millis(float64(d) / float64(time.Millisecond))
	}
	return Uptime(d)
}

// Uptime formats a duration in days, hours and minutes, and below an hour in minutes and seconds.
func Uptime(d time.Duration) string {
	d = d.Round(time.Second)
	days, hours, minutes := d/(24*time.Hour), d%(24*time.Hour)/time.Hour, d%time.Hour/time.Minute
	switch {
	case days > 0:
		return fmt.Sprintf("%s %dh %dm", Plural(int64(days), "day"), hours, minutes)
	case hours > 0:
		return fmt.Sprintf("%dh %dm", hours, minutes)
	}
	if s := d % time.Minute / time.Second; minutes > 0 && s > 0 {
		return fmt.Sprintf("%dm %ds", minutes, s)
	} else if minutes > 0 {
		return fmt.Sprintf("%dm", minutes)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Millis formats a time in milliseconds: 0 ms, <0.01 ms, 0.25 ms, 16 ms, 2.1 s.
func Millis(ms float64) string {
	switch {
	case ms > 0 && ms < 0.005: // rounded it would be 0.00
		return "<0.01 ms"
	case ms >= 1000:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + " s"
	case ms >= 10 || ms == math.Trunc(ms):
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
}
