package gossip

import (
	"context"
	"log"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/loglimit"
)

// logLine is one line for the log.
type logLine struct {
	level slog.Level
	text  string
	args  []any
}

// Pseudo levels of lines that unknown hosts may cause without limit.
const (
	levelMemberlist = slog.LevelDebug - 1 // from memberlist, to be translated
	levelUntrusted  = slog.LevelDebug - 2 // our own warnings
)

// linesMax bounds the queued lines; further ones are dropped. A log that stalls must not block
// memberlist, which logs under its locks.
const linesMax = 256

// bridge writes memberlist's log lines and the table's events to the log, asynchronously.
type bridge struct {
	log     *slog.Logger
	hasKey  bool
	queue   chan logLine
	dropped atomic.Int64

	// The fields below belong to run.
	logged      map[string]time.Time // when a kind of line was last written
	lastDropped time.Time            // when dropped lines were last reported
	limited     loglimit.Warner      // for lines that unknown hosts may cause
}

func newBridge(log *slog.Logger, hasKey bool) *bridge {
	return &bridge{log: log, hasKey: hasKey, queue: make(chan logLine, linesMax), logged: map[string]time.Time{}}
}

type memberlistLogger = *log.Logger

// logger returns a logger for memberlist.
func (b *bridge) logger() memberlistLogger { return log.New(b, "", 0) }

// Write queues one line of memberlist's.
func (b *bridge) Write(text []byte) (int, error) {
	b.put(logLine{levelMemberlist, string(text), nil})
	return len(text), nil
}

// put queues a line, or drops it. Lines that unknown hosts may cause use at most half the queue.
func (b *bridge) put(l logLine) {
	if l.level < slog.LevelDebug && len(b.queue) >= linesMax/2 {
		b.dropped.Add(1)
		return
	}
	select {
	case b.queue <- l:
	default:
		b.dropped.Add(1)
	}
}

// run writes lines until ctx ends, and then the queued ones.
func (b *bridge) run(ctx context.Context) {
	for {
		select {
		case l := <-b.queue:
			b.write(l)
		case <-ctx.Done():
			for {
				select {
				case l := <-b.queue:
					b.write(l)
				default:
					return
				}
			}
		}
	}
}

func (b *bridge) write(l logLine) {
	if now := time.Now(); b.dropped.Load() > 0 && now.Sub(b.lastDropped) >= warnEvery {
		b.lastDropped = now
		b.log.Warn("gossip log lines dropped", "lines", b.dropped.Swap(0))
	}
	switch l.level {
	case levelMemberlist:
		b.translate(l.text)
	case levelUntrusted:
		b.limited.Warn(b.log, l.text, l.args...)
	default:
		b.log.Log(context.Background(), l.level, l.text, l.args...)
	}
}

const (
	rejectedEvery = 10 * time.Minute // period of lines about one host
	warnEvery     = time.Minute      // period of other warnings of one kind
	loggedMax     = 1000
)

var (
	fromPattern  = regexp.MustCompile(`from=(\S+)`)
	labelPattern = regexp.MustCompile(`unacceptable label "([^"]*)"`)
)

// noise marks warnings of memberlist about a dead or slow node, which the table reports already, or
// about nothing wrong.
var noise = []string{
	"Failed fallback TCP ping", "Push/Pull with", "Failed to send", "Refuting", "Got ping for unexpected node",
	"Failed to forward", "Failed to read remote state", "Failed to push local state", "failed to receive and remove",
	"without encryption", "Err: Could not set the deadline", "Error accepting TCP", "Error reading UDP", "missing message type",
}

// translate writes one line of memberlist's, if it is worth it.
func (b *bridge) translate(text string) {
	text = strings.TrimSpace(text)
	level := ""
	if rest, ok := strings.CutPrefix(text, "["); ok {
		level, text, _ = strings.Cut(rest, "] ")
	}
	text = strings.TrimPrefix(text, "memberlist: ")
	if reason := b.rejectReason(text); reason != "" {
		from := "unknown"
		if m := fromPattern.FindStringSubmatch(text); m != nil {
			from = m[1]
		}
		host, _, err := net.SplitHostPort(from)
		if err != nil {
			host = from
		}
		if b.first(reason+host, rejectedEvery) {
			b.limited.Warn(b.log, "gossip message rejected", "from", from, "reason", reason)
		}
		return
	}
	quiet := level != "WARN" && level != "ERR" && level != "ERROR"
	for _, n := range noise {
		quiet = quiet || strings.Contains(text, n)
	}
	kind, _, _ := strings.Cut(text, ":")
	if quiet || !b.first(kind[:min(len(kind), 40)], warnEvery) {
		b.log.Debug("memberlist", "text", text)
		return
	}
	b.limited.Warn(b.log, "memberlist", "text", text)
}

// rejectReason returns why a message was rejected, if the line reports that.
func (b *bridge) rejectReason(text string) string {
	if m := labelPattern.FindStringSubmatch(text); m != nil {
		if m[1] == "" {
			return "no cluster label"
		}
		return "label of cluster " + m[1]
	}
	switch {
	case strings.Contains(text, "Decrypt packet failed"), strings.Contains(text, "failed to receive:") && strings.Contains(text, "crypt"):
		if b.hasKey {
			return "another gossip key, or none"
		}
		return "encrypted, and this node has no gossip key"
	case !b.hasKey && strings.Contains(text, "msg type") && strings.Contains(text, "not supported"):
		return "encrypted, and this node has no gossip key"
	}
	return ""
}

// first reports whether no line of the kind was written during the period.
func (b *bridge) first(kind string, every time.Duration) bool {
	now := time.Now()
	if at, ok := b.logged[kind]; ok && now.Sub(at) < every {
		return false
	}
	if len(b.logged) >= loggedMax {
		clear(b.logged)
	}
	b.logged[kind] = now
	return true
}
