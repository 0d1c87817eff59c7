package serve

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// A journalHandler logs to systemd's journal. Each attribute is a field of its own, for queries such
// as "journalctl -u stele STELE_PART=rpc -p warning", and is also part of the text.
type journalHandler struct {
	minLevel slog.Level // the minimum level
	send     func(text string, p journal.Priority, fields map[string]string) error
	// otherwise gets the records that the journal did not accept.
	fallback slog.Handler
	attrs    []slog.Attr // keys include their groups
	group    string      // prefix of the keys to come, with a trailing dot
}

func newJournalHandler(minLevel slog.Level, fallback slog.Handler) *journalHandler {
	return &journalHandler{minLevel: minLevel, send: journal.Send, fallback: fallback}
}

func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.minLevel }

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.fallback = h.fallback.WithAttrs(attrs)
	c.attrs = h.attrs[:len(h.attrs):len(h.attrs)]
	for _, a := range attrs {
		c.attrs = flatten(c.attrs, h.group, a)
	}
	return &c
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.fallback = h.fallback.WithGroup(name)
	c.group = h.group + name + "."
	return &c
}

// flatten appends an attribute, or the attributes of a group, to attrs.
func flatten(attrs []slog.Attr, group string, a slog.Attr) []slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		if a.Key == "" {
			return attrs
		}
		return append(attrs, slog.Attr{Key: group + a.Key, Value: v})
	}
	if a.Key != "" {
		group += a.Key + "."
	}
	for _, inner := range v.Group() {
		attrs = flatten(attrs, group, inner)
	}
	return attrs
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := h.attrs[:len(h.attrs):len(h.attrs)]
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, h.group, a)
		return true
	})
	text, fields := strings.Builder{}, map[string]string{"SYSLOG_IDENTIFIER": "stele"}
	text.WriteString(r.Message)
	for _, a := range attrs {
		v := fmt.Sprint(a.Value.Any())
		fields[journalField(a.Key)] = v
		if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
			v = strconv.Quote(v)
		}
		fmt.Fprintf(&text, " %s=%s", a.Key, v)
	}
	if err := h.send(text.String(), priorityOf(r.Level), fields); err != nil {
		return h.fallback.Handle(ctx, r)
	}
	return nil
}

// journalField returns the field name of an attribute: STELE_ and the key in upper case. The prefix
// avoids the journal's own fields, such as MESSAGE and PRIORITY.
func journalField(key string) string {
	const longest = 64 // bytes; the journal drops fields with longer names
	field := "STELE_" + strings.Map(func(r rune) rune {
		switch r = unicode.ToUpper(r); {
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return field[:min(len(field), longest)]
}

func priorityOf(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}
