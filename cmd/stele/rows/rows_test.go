package rows

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/table/hll"
)

func sampleRow() *table.Row {
	return &table.Row{Key: []byte("com.cnn.www"), Cells: []table.Cell{
		{Family: "anchor", Qualifier: []byte("cnnsi.com"), Timestamp: 9, Value: []byte("CNN")},
		{Family: "anchor", Qualifier: []byte("a.very.long.name.of.a.page.that.has.a.link"), Timestamp: 8, Value: []byte("CNN.com")},
		{Family: "contents", Timestamp: 1_795_254_000_000_000, Value: []byte("<html>\n\x1b[2J" + strings.Repeat("日本", 40))},
		{Family: "contents", Timestamp: 5, Value: []byte("old")},
		{Family: "n", Qualifier: []byte("visits"), Timestamp: 6, Value: []byte{0, 0, 0, 0, 0, 0, 0, 77}},
		{Family: "n", Qualifier: []byte{0xff}, Timestamp: 6, Value: nil},
		{Family: "u", Qualifier: []byte("users"), Timestamp: 0, Value: hll.AppendOne(nil, 1)},
	}}
}

func TestRowForms(t *testing.T) {
	a, out, _ := clitest.New()
	for _, form := range []struct {
		name  string
		setup func()
		full  bool
		want  string
	}{
		{"json", func() { a.JSON = true }, false, `{"row":"com.cnn.www","row_base64":"Y29tLmNubi53d3c=","cells":[` +
			`{"column":"anchor:cnnsi.com","column_base64":"YW5jaG9yOmNubnNpLmNvbQ==","timestamp":9,"value":"CNN","value_base64":"Q05O"},` +
			`{"column":"anchor:a.very.long.name.of.a.page.that.has.a.link","column_base64":"YW5jaG9yOmEudmVyeS5sb25nLm5hbWUub2YuYS5wYWdlLnRoYXQuaGFzLmEubGluaw==",` +
			`"timestamp":8,"value":"CNN.com","value_base64":"Q05OLmNvbQ=="},` +
			`{"column":"contents:","column_base64":"Y29udGVudHM6","timestamp":1795254000000000,"value_base64":"` +
			base64.StdEncoding.EncodeToString([]byte("<html>\n\x1b[2J"+strings.Repeat("日本", 40))) + `"},` +
			`{"column":"contents:","column_base64":"Y29udGVudHM6","timestamp":5,"value":"old","value_base64":"b2xk"},` +
			`{"column":"n:visits","column_base64":"bjp2aXNpdHM=","timestamp":6,"value_base64":"AAAAAAAAAE0=","value_int":77},` +
			`{"column_base64":"bjr/","timestamp":6,"value":"","value_base64":""},` +
			`{"column":"u:users","column_base64":"dTp1c2Vycw==","timestamp":0,"value_base64":"CHAQARgCIAiCBwsQARgPIBQyA5ajLg==","value_distinct":1}]}` + "\n"},
		{"plain", func() { a.JSON = false }, false, "com.cnn.www\tanchor:cnnsi.com\t9\tCNN\n" +
			"com.cnn.www\tanchor:a.very.long.name.of.a.page.that.has.a.link\t8\tCNN.com\n" +
			"com.cnn.www\tcontents:\t2026-11-21T09:40:00.000000Z\t<html>\\n\\x1b[2J" + strings.Repeat("日本", 40) + "\n" +
			"com.cnn.www\tcontents:\t5\told\n" +
			"com.cnn.www\tn:visits\t6\t\\x00\\x00\\x00\\x00\\x00\\x00\\x00M\n" +
			"com.cnn.www\tn:\\xff\t6\t\n" +
			"com.cnn.www\tu:users\t0\t\\x08p\\x10\\x01\\x18\\x02 \\x08\\x82\\x07\\x0b\\x10\\x01\\x18\\x0f \\x142\\x03\\x96\\xa3.\n"},
		{"terminal", func() { a.OutTTY, a.Color, a.Width = true, false, 80 }, false, "" +
			"com.cnn.www\n" +
			"  anchor:cnnsi.com         9                            CNN\n" +
			"  anchor:a.very.long.nam…  8                            CNN.com\n" +
			"  contents:                2026-11-21T09:40:00.000000Z  <html>\\n\\x1b[2J … 251 B\n" +
			"                           5                            old\n" +
			"  n:visits                 6                            77 (8 bytes)\n" +
			"  n:\\xff                   6                            \n" +
			"  u:users                  0                            ≈ 1 distinct (22 B)\n"},
	} {
		form.setup()
		out.Reset()
		if err := newRowWriter(a, rowForm{full: form.full, counters: form.name == "json"}).write(sampleRow()); err != nil {
			t.Fatal(err)
		}
		a.Out.Flush()
		if diff := cmp.Diff(form.want, out.String()); diff != "" {
			t.Errorf("%s:\n%s", form.name, diff)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 81 {
			t.Errorf("a line of %d columns on a terminal of 80: %s", n, line)
		}
	}
}

// Every byte string survives JSON, and the types of the fields do not depend on the bytes.
func TestJSONField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "bytes")
		text := append(cli.AppendJSONField([]byte{'{'}, "value", b), '}')
		if bytes.ContainsAny(text, "\n\r\u2028\u2029") {
			t.Fatalf("%q is more than one line", text)
		}
		var v struct {
			Value       *string `json:"value"`
			ValueBase64 []byte  `json:"value_base64"`
		}
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !bytes.Equal(v.ValueBase64, b) {
			t.Fatalf("%q became %s", b, text)
		}
		control := strings.ContainsFunc(string(b), func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' })
		if isText := utf8.Valid(b) && !control; isText != (v.Value != nil) || isText && *v.Value != string(b) {
			t.Fatalf("%q became %s", b, text)
		}
	})
}

// Escaped text is printable and on one line, and unescape is the inverse.
func TestEscapeBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "bytes")
		text := cli.EscapeBytes(b)
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) || !utf8.ValidString(text) {
			t.Fatalf("%q became %q", b, text)
		}
		if back, err := cli.Unescape(text); err != nil || back != string(b) {
			t.Fatalf("%q became %s, and came back as %q (%v)", b, text, back, err)
		}
		if again := cli.EscapeText(string(b)); again != text {
			t.Fatalf("escapeText made %q of %q, escapeBytes %q", again, b, text)
		}
	})
}

// BenchmarkPlainRows and BenchmarkJSONRows print rows with one value of 1 KiB, of random bytes and of
// text.
func BenchmarkPlainRows(b *testing.B) { benchmarkRows(b, false) }
func BenchmarkJSONRows(b *testing.B)  { benchmarkRows(b, true) }

func benchmarkRows(b *testing.B, json bool) {
	random := make([]byte, 1024)
	rand.NewChaCha8([32]byte{}).Read(random)
	for name, value := range map[string][]byte{"random": random, "text": []byte(strings.Repeat("0123456789abcde\n", 64))} {
		b.Run(name, func(b *testing.B) {
			a := cli.New(strings.NewReader(""), io.Discard, io.Discard)
			a.JSON = json
			w := newRowWriter(a, rowForm{})
			row := &table.Row{Key: []byte("row-000000000042"), Cells: []table.Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 1_795_254_000_000_000, Value: value}}}
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if err := w.write(row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestCounterOf(t *testing.T) {
	for _, c := range []struct {
		value string
		want  int64
		ok    bool
	}{
		{"\x00\x00\x00\x00\x00\x00\x00\x05", 5, true}, {"\xff\xff\xff\xff\xff\xff\xff\xfe", -2, true},
		{"textual!", 0, false}, {"\x00", 0, false}, {"\x00abcdefg", 0, false}, {"", 0, false},
	} {
		if n, ok := counterOf([]byte(c.value)); ok != c.ok || ok && n != c.want {
			t.Errorf("counterOf(%q) = %d, %v", c.value, n, ok)
		}
	}
}

func TestFramedTable(t *testing.T) {
	a, out, _ := clitest.New()
	a.OutTTY, a.Color, a.Width = true, false, 80
	g := cli.NewGrid("NAME", "ROWS", "SIZE")
	g.Add("a\x1b[2J", cli.Count(1234), cli.Size(1<<20))
	g.Add("", cli.Count(5), cli.Size(0))
	if err := a.Print(g); err != nil {
		t.Fatal(err)
	}
	a.Out.Flush()
	want := `
╭──────────┬───────┬───────╮
│ NAME     │  ROWS │  SIZE │
├──────────┼───────┼───────┤
│ a\x1b[2J │ 1,234 │ 1 MiB │
│ -        │     5 │   0 B │
╰──────────┴───────┴───────╯
`
	if diff := cmp.Diff(want[1:], out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "": false, "yep\n": false} {
		a, _, errs := clitest.New()
		a.In, a.InTTY, a.ErrTTY = strings.NewReader(answer), true, true
		if err := a.Confirm(false, "Drop it?"); (err == nil) != want {
			t.Errorf("answer %q: %v", answer, err)
		}
		if errs.String() != "Drop it? [y/N] " {
			t.Errorf("asked %q", errs)
		}
	}
	a, _, errs := clitest.New()
	if err := a.Confirm(false, "Drop it?"); cli.FaultOf(err).Code != cli.ExitUsage || errs.Len() > 0 {
		t.Errorf("without a terminal: %v, asked %q", err, errs)
	}
	if err := a.Confirm(true, "Drop it?"); err != nil {
		t.Error(err)
	}
}
