package recentlog

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// linesMax is the number of lines that are kept, of info, and of warnings and errors.
const linesMax = api.LogLinesMax / 2

// Service keeps the last lines of a node's log.
type Service struct {
	name string // the node's

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		number        uint64 // of the last line
		text          bytes.Buffer
		infos, alerts ring
	}
}

// New returns a service that has no lines yet. The name is the node's. Numbers of lines begin at the time of its start, so that they
// grow across restarts.
func New(name string) *Service {
	s := &Service{name: name}
	s.mu.number = uint64(time.Now().UnixMicro())
	return s
}

// Register registers the method of the service.
func (s *Service) Register(r method.Registrar) {
	r.HandleNames(api.MethodLogLines, 1, authz.Guard{To: authz.Right, Right: acl.Read}, s.recent)
}

// recent returns the kept lines of a level or above.
func (s *Service) recent(_ context.Context, r *api.NamesRequest) (reply.Result, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.Names[0])); err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%s: level %.20q: must be info, warn or error", api.MethodLogLines, r.Names[0])
	}
	lines := s.Lines(level)
	return lines.Append, nil
}

// Lines returns the kept lines of a level or above, the newest first.
func (s *Service) Lines(level slog.Level) *api.LogLines {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &api.LogLines{Node: s.name, Lines: []api.LogLine{}}
	for _, l := range slices.Concat(s.mu.infos.lines, s.mu.alerts.lines) {
		if l.level >= level {
			a.Lines = append(a.Lines, l.LogLine)
		}
	}
	slices.SortFunc(a.Lines, func(x, y api.LogLine) int { return cmp.Compare(y.Number, x.Number) })
	return a
}

// line is a kept line.
type line struct {
	level slog.Level
	api.LogLine
}

// ring has the last linesMax lines, in any order.
type ring struct {
	lines []line
	next  int // the place of the next one, once there are linesMax
}

func (r *ring) add(l line) {
	if len(r.lines) < linesMax {
		r.lines = append(r.lines, l)
		return
	}
	r.lines[r.next] = l
	r.next = (r.next + 1) % linesMax
}

// Handler returns a handler that keeps lines and passes them to next.
func (s *Service) Handler(next slog.Handler) slog.Handler {
	attrs := slog.NewTextHandler(&s.mu.text, &slog.HandlerOptions{ReplaceAttr: onlyAttrs}) // writes under s.mu
	return &handler{service: s, next: next, attrs: attrs}
}

// onlyAttrs leaves out of a line what LogLine has as fields.
func onlyAttrs(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// handler is a slog.Handler.
type handler struct {
	service *Service
	next    slog.Handler
	attrs   slog.Handler // formats attributes
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.service.keep(ctx, &r, h.attrs)
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.service, h.next.WithAttrs(attrs), h.attrs.WithAttrs(attrs)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.service, h.next.WithGroup(name), h.attrs.WithGroup(name)}
}

// keep keeps a record.
func (s *Service) keep(ctx context.Context, r *slog.Record, attrs slog.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.text.Reset()
	_ = attrs.Handle(ctx, *r) // a buffer does not fail
	s.mu.number++
	message := cut(r.Message, api.LogLineBytesMax)
	l := line{r.Level, api.LogLine{
		Number: s.mu.number, TimeMS: r.Time.UnixMilli(), Level: strings.ToLower(r.Level.String()),
		Message: message, Details: cut(string(bytes.TrimSpace(s.mu.text.Bytes())), api.LogLineBytesMax-len(message)),
	}}
	if s.mu.text.Cap() > 4*api.LogLineBytesMax {
		s.mu.text = bytes.Buffer{} // of one long line
	}
	if r.Level >= slog.LevelWarn {
		s.mu.alerts.add(l)
	} else {
		s.mu.infos.add(l)
	}
}

// cut returns at most n bytes of a text, and shows that it is cut.
func cut(text string, n int) string {
	const more = " …"
	if len(text) <= n {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:max(0, n-len(more))], "") + more[:min(len(more), n)]
}
