package master

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// happening is something that happened in a fleet: to a tablet, to a server, or to both.
type happening struct {
	at          time.Time
	key, server string // of a server alone, key is noTablet
	text        string
}

const noTablet = "no tablet"

// notef notes what happened. The caller holds mu.
func (f *tabletFleet) notef(key, server, format string, args ...any) {
	f.history = append(f.history, happening{time.Now(), key, server, fmt.Sprintf(format, args...)})
}

// historyMax bounds what is told of what happened to a tablet.
const historyMax = 150

// historyOf tells what happened to a tablet, and to the servers that had to do with it: the last of it. The caller holds mu.
func (f *tabletFleet) historyOf(key string) string {
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

// writesIn says which writes there are, for people.
func writesIn(data map[int]bool) string { return fmt.Sprint(slices.Sorted(maps.Keys(data))) }

// wrongMax bounds for how many things that must not be it is told how they came about.
const wrongMax = 3

// wrongf notes what must not be, of a tablet or of noTablet. The caller holds mu.
func (f *tabletFleet) wrongf(key, format string, args ...any) {
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
