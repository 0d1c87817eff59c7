package webtable_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/steledb/stele/internal/webtable"
)

const base = "https://www.example.com/"

var fileTime = time.UnixMicro(1_700_000_000_123_456)

func write(t testing.TB, dir, name, contents string) {
	t.Helper()
	name = filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, fileTime, fileTime); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *webtable.Site {
	t.Helper()
	s, err := webtable.Open(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// describe formats everything known about a site's pages.
func describe(t *testing.T, s *webtable.Site) string {
	t.Helper()
	var out strings.Builder
	for p, err := range s.Pages() {
		if err != nil {
			t.Fatal(err)
		}
		contents, err := s.Read(&p)
		if err != nil {
			t.Fatal(err)
		}
		if p.Timestamp != fileTime.UnixMicro() || p.Size != int64(len(contents)) {
			t.Errorf("%s: timestamp %d, size %d", p.File, p.Timestamp, p.Size)
		}
		doc := s.Extract(&p, contents)
		fmt.Fprintf(&out, "%s %s language=%q elements=%d ignored=%d\n", p.Row, p.URL, doc.Language, doc.Elements, doc.Ignored)
		for _, l := range doc.Links {
			fmt.Fprintf(&out, "  %s %q\n", l.Row, l.Text)
		}
	}
	return out.String()
}

// TestGolden: directories, and everything derived from them (WT1).
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		dir := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				var name string
				d.ScanArgs(t, "name", &name)
				write(t, dir, name, d.Input)
				return ""
			case "pages":
				return describe(t, open(t, dir))
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func TestAddressOf(t *testing.T) {
	for _, c := range []struct{ url, row string }{
		{"https://www.cnn.com/", "com.cnn.www"},
		{"https://www.cnn.com", "com.cnn.www"},
		{"https://www.cnn.com/?", "com.cnn.www"},
		{"https://www.cnn.com/?q=1", "com.cnn.www/?q=1"},
		{"https://www.cnn.com/index.html", "com.cnn.www/index.html"},
		{"http://maps.google.com/index.html", "com.google.maps/index.html"},
		{"HTTP://WWW.CNN.com:80/a/../b?x=1#top", "com.cnn.www/b?x=1"},
		{"http://cnn.com:8080/%7Ejo/caf%c3%a9", "com.cnn:8080/~jo/caf%C3%A9"},
		{"http://cnn.com:443/", "com.cnn:443"},
		{"https://cnn.com:0443/", "com.cnn"},
		{"https://u:p@cnn.com./x//y/", "com.cnn/x//y/"},
		{"https://cnn.com/a/./b/../../c/..", "com.cnn"},
		{"https://cnn.com/a/./b/..", "com.cnn/a/"},
		{"https://cnn.com/../../x", "com.cnn/x"},
		{"https://cnn.com/a%2Fb%2e%2E/%2e%2e/c", "com.cnn/c"},
		{"https://cnn.com/a b\"<>^`{|}é?a b\"[]{}", "com.cnn/a%20b%22%3C%3E%5E%60%7B%7C%7D%C3%A9?a%20b%22%5B%5D%7B%7D"},
		{"https://bücher.example/", "example.xn--bcher-kva"},
		{"http://192.0.2.7/x", "192.0.2.7/x"},
		{"http://[2001:DB8::1]:81/x", "[2001:db8::1]:81/x"},
		{"https://under_score.example/", "example.under_score"},
		{"mailto:jo@example.com", ""}, {"ftp://example.com/", ""}, {"/no/host", ""}, {"https:///x", ""},
		{"https://a..b/", ""}, {"https://exa mple.com/", ""}, {"https://example.com:0/", ""},
		{"https://example.com/" + strings.Repeat("x", 64<<10), ""},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			if c.row != "" {
				t.Errorf("parse %s: %v", c.url, err)
			}
			continue
		}
		a, err := webtable.AddressOf(u)
		if a.Row != c.row || (err != nil) != (c.row == "") {
			t.Errorf("%.80s: row %.80q, error %v; want %q", c.url, a.Row, err, c.row)
		}
	}
}

func TestLanguage(t *testing.T) {
	s := open(t, t.TempDir())
	for text, want := range map[string]string{
		`<html lang="PT_br"><body lang="en">`:                          "pt-BR",
		`<html lang=""><body lang="zh-hant-TW">`:                       "zh-Hant-TW",
		`<html xml:lang="fr" lang=de>`:                                 "de",
		`<html xml:lang="fr">`:                                         "fr",
		`<meta http-equiv=content-language content=" nl , en"><html>`:  "nl",
		`<meta name=language content=sv><html lang=x-klingon>`:         "x-klingon",
		`<meta name="DC.Language" content="it">`:                       "it",
		`<meta property="og:locale" content="en_GB">`:                  "en-GB",
		`<html lang="English, please"><meta name=language content=en>`: "en",
		`<html lang="123"><body lang="a"><p lang="en">`:                "",
		`<html lang="` + strings.Repeat("en-", 20) + `gb">`:            "",
	} {
		if got := s.Extract(&webtable.Page{Address: webtable.Address{URL: base}}, []byte(text)).Language; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestLinkTextBound: the text of a link that is never closed is bounded (WT3).
func TestLinkTextBound(t *testing.T) {
	s := open(t, t.TempDir())
	page := []byte(`<a href=x>` + strings.Repeat("é word ", 1<<15))
	doc := s.Extract(&webtable.Page{Address: webtable.Address{URL: base, Row: "r"}}, page)
	if len(doc.Links) != 1 || len(doc.Links[0].Text) > webtable.LinkTextMax || !utf8.ValidString(doc.Links[0].Text) {
		t.Errorf("%d links, text of %d bytes", len(doc.Links), len(doc.Links[0].Text))
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, base string }{
		{dir, "ftp://example.com/"}, {dir, "example.com"}, {dir, "https://example.com/?q"}, {dir, "https://example.com/?q=1"},
		{dir, "https://example.com/#x"}, {file, base}, {filepath.Join(dir, "missing"), base},
	} {
		if s, err := webtable.Open(c.dir, c.base); err == nil {
			t.Errorf("%s under %s opened as %s", c.dir, c.base, s.URL())
		}
	}
	for given, want := range map[string]string{"https://Example.com": "https://example.com/", "http://example.com/3": "http://example.com/3/"} {
		s, err := webtable.Open(dir, given)
		if err != nil || s.URL() != want {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
	}
}

// TestUnreadable: unreadable entries are reported and the iteration continues.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "b.html")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.html", "")
	write(t, dir, "z/z.html", "")
	if err := os.Mkdir(filepath.Join(dir, "folder.html"), 0o700); err != nil {
		t.Fatal(err)
	}
	var got []string
	for p, err := range open(t, dir).Pages() {
		got = append(got, fmt.Sprint(p.File, " ", err == nil))
	}
	if diff := cmp.Diff([]string{"a.html true", "b.html false", "z/z.html true"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// FuzzExtract: WT3, and WT2 for the extracted links.
func FuzzExtract(f *testing.F) {
	golden, err := filepath.Glob("testdata/golden/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range golden {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text) // all its pages together as one page
	}
	s := open(f, f.TempDir())
	p := webtable.Page{File: "p.html", Address: webtable.Address{URL: base + "p.html", Row: "com.example.www/p.html"}}
	f.Fuzz(func(t *testing.T, contents []byte) {
		doc := s.Extract(&p, contents)
		size := 0
		for _, l := range doc.Links {
			size += len(l.Text)
			if l.Row == "" || l.Row == p.Row || !utf8.ValidString(l.Text) {
				t.Errorf("link %q %q", l.Row, l.Text)
			}
			if bytes.ContainsFunc([]byte(l.Row), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Errorf("row %q", l.Row)
			}
		}
		if max := 4*len(contents) + 64; size > max { // U+FFFD is three bytes, and an end of line
			t.Errorf("%d bytes of text from a page of %d", size, len(contents))
		}
	})
}

// FuzzAddress: WT2.
func FuzzAddress(f *testing.F) {
	f.Add("https://www.cnn.com/a/%2e%2e/b?c=%zz#d")
	f.Add("http://[::1]:8080/%7e//x/..?")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		a, err := webtable.AddressOf(u)
		if err != nil {
			return
		}
		again, err := url.Parse(a.URL)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, a.URL, err)
		}
		if b, err := webtable.AddressOf(again); err != nil || a != b {
			t.Errorf("%q became %+v, then %+v, %v", text, a, b, err)
		}
	})
}
