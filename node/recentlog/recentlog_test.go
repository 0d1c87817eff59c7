package recentlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"unicode/utf8"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// TestPassedOn (RL1): the next handler gets what it would get without this one, and only at its levels.
func TestPassedOn(t *testing.T) {
	format := func(h func(slog.Handler) slog.Handler) string {
		var b bytes.Buffer
		log := slog.New(h(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		log.Debug("debug")
		log.Info("info")
		log.With("part", "x").WithGroup("g").With("a", 1).Warn("warn", "b", "two words", "msg", "of an attribute")
		log.Error("error", "err", errors.New("broken"))
		return b.String()
	}
	want := format(func(h slog.Handler) slog.Handler { return h })
	s := New("n1")
	if got := format(s.Handler); got != want {
		t.Errorf("passed on:\n%s\nwant:\n%s", got, want)
	}
	var got strings.Builder
	for _, l := range s.Lines(slog.LevelDebug).Lines {
		fmt.Fprintf(&got, "%s %s: %s\n", l.Level, l.Message, l.Details)
	}
	const kept = "error error: err=broken\nwarn warn: part=x g.a=1 g.b=\"two words\" g.msg=\"of an attribute\"\ninfo info: \n"
	if got.String() != kept {
		t.Errorf("kept:\n%s\nwant:\n%s", &got, kept)
	}
}

// TestHandler checks the handler by the rules of log/slog.
func TestHandler(t *testing.T) {
	var b bytes.Buffer
	h := New("n1").Handler(slog.NewJSONHandler(&b, nil))
	if err := slogtest.TestHandler(h, func() (all []map[string]any) {
		for line := range bytes.Lines(b.Bytes()) {
			m := map[string]any{}
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		return all
	}); err != nil {
		t.Error(err)
	}
}

// TestBounds (RL1, RL2): the last lines of info and those above are kept apart, none is longer than the bound, and numbers grow.
func TestBounds(t *testing.T) {
	s := New("n1")
	log := slog.New(s.Handler(slog.NewTextHandler(io.Discard, nil)))
	log.Warn("first warning")
	long := strings.Repeat("é", api.LogLineBytesMax)
	for i := range 3 * linesMax {
		log.Info(fmt.Sprint("info ", i), "long", long)
	}
	log.Error(long, "long", strings.Repeat(long, 100))
	all := s.Lines(slog.LevelInfo).Lines
	if len(all) != linesMax+2 || all[0].Level != "error" || all[1].Message != fmt.Sprint("info ", 3*linesMax-1) || all[len(all)-1].Message != "first warning" {
		t.Errorf("%d lines, from %.20q to %q", len(all), all[0].Message, all[len(all)-1].Message)
	}
	for i, l := range all {
		if len(l.Message)+len(l.Details) > api.LogLineBytesMax || !utf8.ValidString(l.Message+l.Details) || i > 0 && l.Number >= all[i-1].Number {
			t.Fatalf("line %d: number %d, %d bytes of message, %d of details", i, l.Number, len(l.Message), len(l.Details))
		}
	}
	if n := len(s.Lines(slog.LevelWarn).Lines); n != 2 {
		t.Errorf("%d warnings and errors, want 2", n)
	}
	if s.mu.text.Cap() > 8*api.LogLineBytesMax {
		t.Errorf("%d bytes are kept for formatting", s.mu.text.Cap())
	}
	var e wire.Encoder
	lines := s.Lines(slog.LevelInfo)
	lines.Append(&e)
	d := wire.NewDecoder(e.Bytes())
	var got api.LogLines
	if err := got.Decode(&d); err != nil || len(got.Lines) != len(all) || got.Lines[0] != all[0] || got.Node != "n1" {
		t.Errorf("decoded %d lines, %v", len(got.Lines), err)
	}
}
