package master

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// happening is an event in a cluster: of a tablet, of a server, or of both.
type happening struct {
	at          time.Time
	key, server string // of a server alone, key is noTablet
	text        string
}

const noTablet = "no tablet"

// notef records an event. The caller holds mu.
func (f *simCluster) notef(key, server, format string, args ...any) {
	f.history = append(f.history, happening{time.Now(), key, server, fmt.Sprintf(format, args...)})
}

// historyMax bounds the events returned for a tablet.
const historyMax = 150

// historyOf returns the latest events of a tablet and of the servers concerned with it. The caller
// holds mu.
func (f *simCluster) historyOf(key string) string {
	servers := map[string]bool{}
	for _, h := range f.history {
		if h.key == key {
			servers[h.server] = true
		}
	}
	var lines []string
	for _, h := range f.history {
		if h.key == key || h.key == noTablet && servers[h.server] {
			lines = append(lines, fmt.Sprintf("%9.3fs %s: %s", h.at.Sub(f.history[0].at).Seconds(), h.server, h.text))
		}
	}
	return fmt.Sprintf("what happened to tablet %q:\n%s", key, strings.Join(lines[max(0, len(lines)-historyMax):], "\n"))
}

// writesIn describes which writes exist.
func writesIn(data map[int]bool) string { return fmt.Sprint(slices.Sorted(maps.Keys(data))) }

// wrongMax bounds the violations that are reported with their history.
const wrongMax = 3

// wrongf records a violation for a tablet or for noTablet. The caller holds mu.
func (f *simCluster) wrongf(key, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if key != noTablet {
		f.notef(key, "", "WRONG: %s", text)
		text = fmt.Sprintf("tablet %q: %s", key, text)
		if len(f.wrong) < wrongMax {
			text += "; " + f.historyOf(key)
		}
	}
	f.wrong = append(f.wrong, text)
}
