package world

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"os"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/steledb/stele/test/simulation/machine"
)

// An event is one line of the history.
type event struct {
	at   time.Duration
	host string
	text string        // of a line that was formatted when it happened
	line func() string // or how to format it, if it is printed
}

// A trace is the history of a world: a hash of all events, those that are text, and the last of the
// others, which are messages and disk operations.
type trace struct {
	hash   uint64
	events int64
	lines  []event
	ring   [40]event
	next   int
	log    io.Writer // all events, if not nil
	// logged is called for each message of a log.
	logged func(host, message string)
}

// linesMax bounds the lines that are kept.
const linesMax = 100_000

// open opens the log of all events, if there is to be one. The function that it returns closes it.
func (t *trace) open(name string) (end func()) {
	switch name {
	case "":
		return func() {}
	case os.DevNull:
		t.log = io.Discard
		return func() {}
	}
	f, err := createLog(name)
	if err != nil {
		panic(err)
	}
	t.log = f
	return func() {
		if err := f.Close(); err != nil {
			panic(err)
		}
	}
}

// mix adds a number to the hash.
func (t *trace) mix(x uint64) {
	t.hash = bits.RotateLeft64(t.hash^x*0x9e3779b97f4a7c15, 27)*5 + 0x52dce729
}

// add adds an event that is text already.
func (t *trace) add(host, text string) {
	t.mix(xxhash.Sum64String(text))
	t.put(event{at: machine.Now(), host: host, text: text})
}

// addf is add for the events of the world itself.
func (t *trace) addf(host, format string, args ...any) { t.add(host, fmt.Sprintf(format, args...)) }

// numbers adds an event of numbers, whose line is made only if it is printed.
func (t *trace) numbers(host string, line func() string, numbers ...uint64) {
	for _, n := range numbers {
		t.mix(n)
	}
	t.put(event{at: machine.Now(), host: host, line: line})
}

func (t *trace) put(e event) {
	t.mix(uint64(e.at))
	t.events++
	if t.log != nil {
		fmt.Fprintln(t.log, e)
	}
	if e.line == nil {
		if len(t.lines) < linesMax {
			t.lines = append(t.lines, e)
		}
		return
	}
	t.ring[t.next] = e
	t.next = (t.next + 1) % len(t.ring)
}

// String implements fmt.Stringer.
func (e event) String() string {
	text := e.text
	if e.line != nil {
		text = e.line()
	}
	return fmt.Sprintf("%12.6f  %-9s %s", e.at.Seconds(), e.host, text)
}

// print writes about n lines around a time, mostly before it, and, if that is now, the last messages and
// disk operations.
func (t *trace) print(w io.Writer, at time.Duration, n int) {
	end := len(t.lines)
	for end > 0 && t.lines[end-1].at > at {
		end--
	}
	last := min(end+n/4, len(t.lines))
	for _, e := range t.lines[max(0, last-n):last] {
		fmt.Fprintln(w, e)
	}
	if last < len(t.lines) {
		return
	}
	fmt.Fprintln(w, "the last messages and disk operations:")
	for i := range t.ring {
		if e := t.ring[(t.next+i)%len(t.ring)]; e.line != nil {
			fmt.Fprintln(w, e)
		}
	}
}

// logger returns the log of a host's processes, whose lines are events.
func (t *trace) logger(host string) *slog.Logger { return slog.New(&logHandler{t: t, host: host}) }

// logHandler implements slog.Handler.
type logHandler struct {
	t     *trace
	host  string
	attrs string
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s", r.Level, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool { b.WriteString(attrText(a)); return true })
	h.t.add(h.host, b.String())
	h.t.logged(h.host, r.Message)
	return nil
}

func attrText(a slog.Attr) string {
	if b, ok := a.Value.Any().([]byte); ok {
		return fmt.Sprintf(" %s=%q", a.Key, b)
	}
	return fmt.Sprintf(" %s=%v", a.Key, a.Value)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	for _, a := range attrs {
		c.attrs += attrText(a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(string) slog.Handler { return h }

func hashText(s string) uint64 { return xxhash.Sum64String(s) }
