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

	"github.com/steledb/stele/internal/seldom"
)

// line is one line for the log.
type line struct {
	level slog.Level
	text  string
	args  []any
}

// Levels of lines that strangers may cause as often as they like.
const (
	levelMemberlist = slog.LevelDebug - 1 // memberlist's, to be translated
	levelStranger   = slog.LevelDebug - 2 // ours, warnings
)

// linesMax bounds the lines that wait for the log; further ones are dropped. A log
// that stalls must not hold up memberlist, which logs under its locks.
const linesMax = 256

// bridge brings what memberlist logs, and what the table has to say, into the log.
type bridge struct {
	log     *slog.Logger
	hasKey  bool
	queue   chan line
	dropped atomic.Int64

	// What follows is run's own.
	said        map[string]time.Time // when a kind of line was last let through
	saidDropped time.Time            // when it was last said that lines were dropped
	strangers   seldom.Warner        // of what strangers may cause
}

func newBridge(log *slog.Logger, hasKey bool) *bridge {
	return &bridge{log: log, hasKey: hasKey, queue: make(chan line, linesMax), said: map[string]time.Time{}}
}

type memberlistLogger = *log.Logger

// logger returns a logger for memberlist.
func (b *bridge) logger() memberlistLogger { return log.New(b, "", 0) }

// Write takes one line of memberlist's.
func (b *bridge) Write(text []byte) (int, error) {
	b.put(line{levelMemberlist, string(text), nil})
	return len(text), nil
}

// put takes a line. Half the queue is kept from strangers.
func (b *bridge) put(l line) {
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

// run writes lines until ctx ends, and then those that wait.
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

func (b *bridge) write(l line) {
	if now := time.Now(); b.dropped.Load() > 0 && now.Sub(b.saidDropped) >= warnEvery {
		b.saidDropped = now
		b.log.Warn("lines about gossip were dropped", "lines", b.dropped.Swap(0))
	}
	switch l.level {
	case levelMemberlist:
		b.translate(l.text)
	case levelStranger:
		b.strangers.Warn(b.log, l.text, l.args...)
	default:
		b.log.Log(context.Background(), l.level, l.text, l.args...)
	}
}

const (
	refusedEvery = 10 * time.Minute // lines about one host that is refused
	warnEvery    = time.Minute      // other warnings of one kind
	saidMax      = 1000
)

var (
	fromPattern  = regexp.MustCompile(`from=(\S+)`)
	labelPattern = regexp.MustCompile(`unacceptable label "([^"]*)"`)
)

// noise is what memberlist warns of when a node is dead or slow, which the table
// tells already, or when nothing is wrong.
var noise = []string{
	"Failed fallback TCP ping", "Push/Pull with", "Failed to send", "Refuting", "Got ping for unexpected node",
	"Failed to forward", "Failed to read remote state", "Failed to push local state", "failed to receive and remove",
	"without encryption", "Err: Could not set the deadline", "Error accepting TCP", "Error reading UDP", "missing message type",
}

// translate brings one line of memberlist's into the log, if it is worth it.
func (b *bridge) translate(text string) {
	text = strings.TrimSpace(text)
	level := ""
	if rest, ok := strings.CutPrefix(text, "["); ok {
		level, text, _ = strings.Cut(rest, "] ")
	}
	text = strings.TrimPrefix(text, "memberlist: ")
	if reason := b.refusal(text); reason != "" {
		from := "unknown"
		if m := fromPattern.FindStringSubmatch(text); m != nil {
			from = m[1]
		}
		host, _, err := net.SplitHostPort(from)
		if err != nil {
			host = from
		}
		if b.first(reason+host, refusedEvery) {
			b.strangers.Warn(b.log, "gossip refused", "from", from, "reason", reason)
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
	b.strangers.Warn(b.log, "memberlist", "text", text)
}

// refusal says why what came was not taken, if the line tells of that.
func (b *bridge) refusal(text string) string {
	if m := labelPattern.FindStringSubmatch(text); m != nil {
		if m[1] == "" {
			return "it is of no cluster"
		}
		return "it is of cluster " + m[1]
	}
	switch {
	case strings.Contains(text, "Decrypt packet failed"), strings.Contains(text, "failed to receive:") && strings.Contains(text, "crypt"):
		if b.hasKey {
			return "it has another gossip key, or none"
		}
		return "it has a gossip key and this node has none"
	case !b.hasKey && strings.Contains(text, "msg type") && strings.Contains(text, "not supported"):
		return "it has a gossip key and this node has none"
	}
	return ""
}

// first tells whether no line of the kind was written for that long.
func (b *bridge) first(kind string, every time.Duration) bool {
	now := time.Now()
	if at, ok := b.said[kind]; ok && now.Sub(at) < every {
		return false
	}
	if len(b.said) >= saidMax {
		clear(b.said)
	}
	b.said[kind] = now
	return true
}
