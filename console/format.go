package console

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/steledb/stele/internal/text"
)

// keyShown is the number of bytes of a row key that lists show.
const keyShown = 96

// keyText returns a row key as text, shortened.
func keyText(key []byte) string {
	if len(key) > keyShown {
		return text.Bytes(key[:keyShown]) + "…"
	}
	return text.Bytes(key)
}

// msAgo returns how long ago a time in ms since 1970 was.
func msAgo(ms int64) string {
	if ms == 0 {
		return "–"
	}
	return text.Uptime(time.Since(time.UnixMilli(ms)).Round(time.Second)) + " ago"
}

// took returns how long a request took.
func took(d time.Duration) string { return text.Millis(float64(d) / float64(time.Millisecond)) }

// mean returns the mean time of operations that took so many µs in all, or – if that is unknown.
func mean(micros, ops int64) string {
	if micros <= 0 || ops <= 0 {
		return "–"
	}
	return text.Millis(float64(micros) / float64(ops) / 1000)
}

// callRate returns how many there are a second, of so many in some ms.
func callRate(n, ms int64) string { return text.Count(n * 1000 / max(ms, 1)) }

// msIn returns how far away a time in ms since 1970 is; 0 means never.
func msIn(ms int64) string {
	switch d := time.Until(time.UnixMilli(ms)).Round(time.Second); {
	case ms == 0:
		return "never"
	case d <= 0:
		return "now"
	default:
		return "in " + text.Uptime(d)
	}
}

// percent returns a fraction in percent.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "0%"
	}
	return strconv.FormatInt(100*part/whole, 10) + "%"
}

// orUnknown returns a count, or ? for nil.
func orUnknown(n *int64) string {
	if n == nil {
		return "?"
	}
	return text.Count(*n)
}

// moreThanNone returns a number, or nothing if it is 0 or unknown.
func moreThanNone(n *int64) string {
	if n == nil || *n == 0 {
		return ""
	}
	return text.Count(*n)
}

// sizeOrUnknown returns a size, or ? for nil.
func sizeOrUnknown(n *int64) string {
	if n == nil {
		return "?"
	}
	return text.Size(*n)
}

// rounded returns a number with three digits, so that pages stay small.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// inUnit returns a value of a chart.
func inUnit(v float64, unit string) string {
	switch unit {
	case "ms":
		return strconv.FormatFloat(v, 'g', -1, 64) + " ms"
	case "bytes":
		return text.Size(int64(v)) + "/s"
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + "/s"
}

// bar is a share of something, drawn in an SVG: the policy forbids styles in elements.
type bar struct {
	Percent int    // at most 100
	Level   string // good, warn or bad
	Text    string
}

// usedBar is the bar of used bytes.
func usedBar(used, total int64) bar {
	if total <= 0 {
		return bar{Level: "good", Text: "unknown"}
	}
	p := int(100 * used / total)
	b := bar{Percent: min(max(p, 0), 100), Level: "good", Text: fmt.Sprintf("%s of %s", text.Size(used), text.Size(total))}
	switch {
	case p >= 90:
		b.Level = "bad"
	case p >= 75:
		b.Level = "warn"
	}
	return b
}
