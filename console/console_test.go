package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// TestDecoders: values are shown as what they are, or as text with a note that they are not.
func TestDecoders(t *testing.T) {
	packed, err := msgpack.Marshal(map[string]any{"a": []any{1, []byte{0xff}, nil}})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		as         string
		in         string
		kind, text string
	}{
		{"auto", "plain", "text", "plain"},
		{"auto", "", "text", ""},
		{"auto", `{"a": 1}`, "JSON", `{"a":1}`},
		{"auto", `[` + strings.Repeat(`"x",`, 40) + `1]`, "JSON", "[\n  \"x\",\n"},
		{"auto", `{"a"`, "text", `{"a"`},
		{"auto", "\x00\x00\x00\x00\x00\x00\x00\x05", "int64", "5"},
		{"auto", "\xff\xff\xff\xff\xff\xff\xff\xff", "int64", "-1"},
		{"auto", "8 bytes!", "text", "8 bytes!"},
		{"auto", "\x00\xff", "text", `\x00\xff`},
		{"auto", "two\nlines", "text", "two\nlines"},
		{"text", "\x1b[31m", "text", `\x1b[31m`},
		{"JSON", "no", "not JSON", "no"},
		{"int64", "12345678", "int64", "3544952156018063160"},
		{"int64", "1", "not int64", "1"},
		{"MessagePack", string(packed), "MessagePack", `{"a":[1,"\\xff",null]}`},
		{"MessagePack", string(packed) + "x", "not MessagePack", `\x81`},
		{"MessagePack", "\xdd\xff\xff\xff\xff", "not MessagePack", `\xdd`}, // an array of 4 billion
		{"hex", "ab", "hex", "00000000  61 62"},
	} {
		v := decoderOf(x.as)([]byte(x.in))
		if v.Kind != x.kind || !strings.HasPrefix(v.Text, x.text) || v.Bytes != len(x.in) {
			t.Errorf("%s of %q: %+v", x.as, x.in, v)
		}
	}
}

// TestLargeValues (CO2): what is shown of a value is bounded.
func TestLargeValues(t *testing.T) {
	for _, as := range decoderNames() {
		for _, b := range []string{"x", "{", "\x91", "\x00", `"`} {
			if v := decoderOf(as)([]byte(strings.Repeat(b, 1<<20))); len(v.Text) > 8*valueShown || v.More == 0 {
				t.Errorf("%s of %q: %d bytes of text, %d more", as, b, len(v.Text), v.More)
			}
		}
	}
}

// TestNestedJSON (CO2): the indents of deeply nested JSON are not made.
func TestNestedJSON(t *testing.T) {
	b := []byte(strings.Repeat("[", 4000) + strings.Repeat("]", 4000))
	for _, as := range []string{decodeAuto, decodeJSON} {
		if made := testing.Benchmark(func(b2 *testing.B) {
			b2.ReportAllocs()
			for range b2.N {
				decoderOf(as)(b)
			}
		}).AllocedBytesPerOp(); made > 100<<10 {
			t.Errorf("%s: %d bytes were allocated for a value of %d", as, made, len(b))
		}
	}
}

func TestPathWithin(t *testing.T) {
	for to, want := range map[string]string{"/tables?q=x": "/tables?q=x", "": "/", "//x": "/", "http://x": "/", `/\x`: "/", "/a\r\nb": "/", "x": "/"} {
		if got := pathWithin(to); got != want {
			t.Errorf("%q: %q, want %q", to, got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	for err, want := range map[error]int{
		fmt.Errorf("x: %w", client.ErrNoTable): 404, client.ErrPermission: 403, errors.New("x"): 502, errCrowded: 503, client.ErrTabletBusy: 409, client.ErrConflict: 409, api.ErrOverloaded: 503, context.DeadlineExceeded: 504,
	} {
		if got, f := failureOf(err); got != want || f.Text == "" {
			t.Errorf("%v: %d %q, want %d", err, got, f.Text, want)
		}
	}
	if got := usedBar(95, 100); got.Level != "bad" || got.Percent != 95 {
		t.Errorf("%+v", got)
	}
	if got := usedBar(5, 0); got.Text != "unknown" {
		t.Errorf("%+v", got)
	}
	if http.StatusText(errCrowded.status) == "" {
		t.Error("no status")
	}
}

// TestDeepJSON: brackets within texts do not hide how deep a value is, which would make megabytes of a few kilobytes.
func TestDeepJSON(t *testing.T) {
	const levels = 9990
	for value, want := range map[string]int{`["]",` + strings.Repeat(`["\"]",`, levels-1) + "1" + strings.Repeat("]", levels): levels, `{"a\"[[":"[[[\\","b":[1]}`: 2} {
		if got := depthOf([]byte(value)); got != want {
			t.Errorf("%.30s: depth %d, want %d", value, got, want)
		}
		if got := guess([]byte(value)); len(got.Text) > len(value) {
			t.Errorf("%.30s: %d bytes of text", value, len(got.Text))
		}
	}
}
