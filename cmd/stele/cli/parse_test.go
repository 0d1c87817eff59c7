package cli

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "4GiB": 4 << 30, "1.5 GiB": 3 << 29, "512MB": 512e6, "64K": 64 << 10, "10B": 10, "1TiB": 1 << 40,
		"9007199254740993": 9007199254740993, "0.5KiB": 512,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "4 zillion", "1e30", "NaN", "4GiBs", "9223372036854775807KiB", "0x10"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		} else if FaultOf(err).Code != ExitUsage {
			t.Errorf("parseSize(%q): exit code %d", text, FaultOf(err).Code)
		}
	}
}

func TestFormatSizeAndCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 10: "64 KiB", 1<<20 - 1: "1.0 MiB", 313<<20 + 5: "313 MiB",
		math.MaxInt64: "8192 PiB",
	} {
		if got := FormatSize(n); got != want {
			t.Errorf("formatSize(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := FormatCount(n); got != want {
			t.Errorf("formatCount(%d) = %q, want %q", n, got, want)
		}
	}
	if got := Plural(1, "family") + " " + Plural(2, "family") + " " + Plural(0, "row"); got != "1 family 2 families 0 rows" {
		t.Error(got)
	}
}

func TestParseMoment(t *testing.T) {
	now := time.UnixMicro(1_795_254_000_000_000)
	for text, want := range map[string]int64{
		"0": 0, "1795254000000000": 1_795_254_000_000_000,
		"2026-11-21T10:00:00Z": 1_795_255_200_000_000, "2026-11-21T10:00:00.000001+01:00": 1_795_251_600_000_001,
		"2026-11-21": 1_795_219_200_000_000,
		"1h":         1_795_250_400_000_000, "2d": 1_795_081_200_000_000, "90s ago": 1_795_253_910_000_000, "0s": 1_795_254_000_000_000,
	} {
		if got, err := ParseMoment(text, now); err != nil || got.UnixMicro() != want {
			t.Errorf("parseMoment(%q) = %d, %v; want %d", text, got.UnixMicro(), err, want)
		}
	}
	for _, text := range []string{"", "-5", "-1h", "soon", "2026-13-01", "1950-01-01", "99999999999999999999", "300000d"} {
		if got, err := ParseMoment(text, now); err == nil {
			t.Errorf("parseMoment(%q) = %v, want an error", text, got)
		}
	}
}

// What is shown can be given back.
func TestMomentsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Min(0).Draw(t, "µs")
		got, err := ParseMoment(FormatMoment(micros), time.Now())
		if err != nil || got.UnixMicro() != micros {
			t.Fatalf("%d is shown as %s and read as %d, %v", micros, FormatMoment(micros), got.UnixMicro(), err)
		}
	})
}

// CM2: nothing that is shown can steer a terminal, and --escaped reads it back.
func TestEscapesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		shown := EscapeBytes(b)
		if strings.ContainsFunc(shown, func(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }) {
			t.Fatalf("%q is shown as %q", b, shown)
		}
		if got, err := Unescape(shown); err != nil || got != string(b) {
			t.Fatalf("%q is shown as %s and read as %q, %v", b, shown, got, err)
		}
	})
}

func TestEscapeText(t *testing.T) {
	for text, want := range map[string]string{
		"plain À la 日本語": "plain À la 日本語", "a\tb\nc\rd": `a\tb\nc\rd`, `a\b`: `a\\b`, "\x1b[2J": `\x1b[2J`, "\x80\xff": `\x80\xff`,
		"\uFFFD": "\uFFFD", "\u200b\u202e\u2028": `\xe2\x80\x8b\xe2\x80\xae\xe2\x80\xa8`, "\u00a0": `\xc2\xa0`,
	} {
		if got := EscapeText(text); got != want {
			t.Errorf("escapeText(%q) = %s, want %s", text, got, want)
		}
	}
	if got := EscapeLines("C:\\x\n\x1bnext"); got != "C:\\x\n\\x1bnext" {
		t.Errorf("escapeLines keeps lines and backslashes: %q", got)
	}
	for _, text := range []string{`\`, `\q`, `\x`, `\x1`, `\xzz`, `a\`} {
		if got, err := Unescape(text); err == nil {
			t.Errorf("unescape(%s) = %q, want an error", text, got)
		}
	}
}

func TestParseAssignment(t *testing.T) {
	for text, want := range map[string][2]string{
		"f:q=v": {"f:q", "v"}, "f:=v": {"f:", "v"}, "f:q=": {"f:q", ""}, "f:q=a=b": {"f:q", "a=b"}, "a:http://x/=y": {"a:http://x/", "y"},
	} {
		column, value, err := ParseAssignment(text)
		if diff := cmp.Diff(want, [2]string{column, value}); err != nil || diff != "" {
			t.Errorf("parseAssignment(%q): %v %s", text, err, diff)
		}
	}
	for _, text := range []string{"", "f", "f=v", "f:q", "f=a:b"} {
		if _, _, err := ParseAssignment(text); FaultOf(err).Code != ExitUsage {
			t.Errorf("parseAssignment(%q) = %v, want wrong usage", text, err)
		}
	}
}

func TestWithPorts(t *testing.T) {
	for text, want := range map[string]string{
		"h": "h:7106", "h:1": "h:1", "::1": "[::1]:7106", "[::1]": "[::1]:7106", "[::1]:5": "[::1]:5", "a, b:2": "a:7106,b:2",
	} {
		if got, err := WithPorts(text); err != nil || got != want {
			t.Errorf("withPorts(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", ":1", "h:", "h:x", "h:99999", "http://h", "a,,b"} {
		if got, err := WithPorts(text); FaultOf(err).Code != ExitUsage {
			t.Errorf("withPorts(%q) = %q, %v; want wrong usage", text, got, err)
		}
	}
}

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{"listn": "listen", "data_dirs": "data_dir", "mem": "", "xyzzy": "", "memroy": "memory", "": ""} {
		if got := Nearest(word, []string{"data_dir", "listen", "gossip", "http", "join", "memory", "reserve", "name"}); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
