package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/security/pki"
)

var epoch = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// example is the token of the package doc.
func example(kind Kind) Token {
	t := Token{kind: kind, id: ID{1, 2, 3, 4, 5, 6, 7, 8}, secret: seal([secretBytes]byte(bytes.Repeat([]byte{0xa1}, secretBytes))), ends: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range t.fingerprint {
		t.fingerprint[i] = 0xf2
	}
	return t
}

func equal(a, b Token) bool {
	return a.kind == b.kind && a.id == b.id && a.secret() == b.secret() && a.fingerprint == b.fingerprint && a.ends.Equal(b.ends)
}

// TestText pins the worked example and checks that the package doc shows it.
func TestText(t *testing.T) {
	for kind, want := range map[Kind]string{Join: goldenJoin, Access: goldenAccess} {
		if got := example(kind).Reveal(); got != want {
			t.Errorf("%v token is\n%s, want\n%s", kind, got, want)
		}
		if got, err := Parse(want); err != nil || !equal(got, example(kind)) {
			t.Errorf("%s is read as %v, %v", want, got, err)
		}
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(strings.ReplaceAll(string(doc), "//", "")), "")
	if !strings.Contains(flat, goldenJoin) {
		t.Error("doc.go has a different text")
	}
}

const (
	goldenJoin   = "stele-join-040g40r40m30e251m6gt38d1m6gt38d1m6gt38d1ybsf5wqjybsf5wqjybsf5wqjybsf5wqjybsf5wqjybsf5wqjybs00tspxj020zt4dm"
	goldenAccess = "stele-access-040g40r40m30e251m6gt38d1m6gt38d1m6gt38d1ybsf5wqjybsf5wqjybsf5wqjybsf5wqjybsf5wqjybsf5wqjybs00tspxj00jd6y0c"
)

func TestNew(t *testing.T) {
	f := pki.Fingerprint{1, 2, 3}
	a, b := New(Join, f, epoch, time.Hour), New(Join, f, epoch, time.Hour)
	if a.ID() == b.ID() || a.secret() == b.secret() || a.secret() == [secretBytes]byte{} {
		t.Error("two tokens are alike")
	}
	if a.Kind() != Join || a.Authority() != f || !a.Ends().Equal(epoch.Add(time.Hour)) {
		t.Errorf("made %v, %v, %v", a.Kind(), a.Authority(), a.Ends())
	}
	if never := New(Access, f, epoch, 0); !never.Ends().IsZero() {
		t.Errorf("a token without expiry ends %v", never.Ends())
	}
	if id, err := ParseID(a.ID().String()); err != nil || id != a.ID() {
		t.Error(id, err)
	}
	for _, bad := range []string{"", "00", a.ID().String() + "00", "x123456789abcdef"} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("%q was read as an id", bad)
		}
	}
}

// TestCopyAndPaste covers changes made by terminals, mail programs and people.
func TestCopyAndPaste(t *testing.T) {
	for _, kind := range []Kind{Join, Access} {
		tok := New(kind, pki.Fingerprint{9}, epoch, time.Hour)
		text := tok.Reveal()
		var lines strings.Builder
		for i := 0; i < len(text); i += 17 {
			lines.WriteString(text[i:min(i+17, len(text))] + "\r\n\t ")
		}
		zeros := strings.NewReplacer("0", "O", "1", "l").Replace(text[len(prefixes[kind]):])
		for what, s := range map[string]string{
			"as it is": text, "a line's end": text + "\n", "broken": lines.String(), "capitals": strings.ToUpper(text),
			"quotes": `"` + text + `"`, "ticks": " `" + text + "` ", "letters for digits": prefixes[kind] + zeros,
		} {
			if got, err := Parse(s); err != nil || !equal(got, tok) {
				t.Errorf("%s: %v, %v", what, got, err)
			}
		}
	}
}

// random returns a generator with the seed of the test.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testseed.New(t), 0))
}

// TestTypingErrors: TK5. A wrong, missing, doubled or swapped character is detected.
func TestTypingErrors(t *testing.T) {
	rng := random(t)
	for range 20 {
		tok := New(Kind(1+rng.IntN(2)), pki.Fingerprint{byte(rng.Uint32())}, epoch, time.Hour)
		text := tok.Reveal()
		bad := func(what, s string) {
			t.Helper()
			got, err := Parse(s)
			if s == text {
				return
			}
			var format *FormatError
			if !errors.As(err, &format) {
				t.Fatalf("%s was read: %s as %v, %v", what, s, got, err)
			}
			if len(s) > 40 && strings.Contains(err.Error(), s[len(s)-12:]) {
				t.Errorf("the error holds a part of the token: %v", err)
			}
		}
		for i := range text {
			bad("cut", text[:i])
			bad("a character less", text[:i]+text[i+1:])
			bad("a character twice", text[:i]+text[i:i+1]+text[i:])
			other := alphabet[rng.IntN(len(alphabet))]
			if values[text[i]] != values[other] || i < len(prefixes[tok.kind]) {
				bad("another character", text[:i]+string(other)+text[i+1:])
			}
			bad("a character of none", text[:i]+"u"+text[i+1:])
			if i > 0 {
				bad("swapped", text[:i-1]+text[i:i+1]+text[i-1:i]+text[i+1:])
			}
		}
		bad("another kind", strings.NewReplacer("join", "access", "access", "join").Replace(text))
		bad("two tokens", text+text)
		bad("large", strings.Repeat(text, 100))
		if _, err := Parse(text + strings.Repeat(" ", textBytesMax)); err == nil || !strings.Contains(err.Error(), "1024 bytes") {
			t.Fatalf("large, though of spaces: %v", err)
		}
	}
}

// TestNewerVersion: a text of a later version is reported as such, not as a typing error.
func TestNewerVersion(t *testing.T) {
	tok := example(Join)
	body, _ := decodeText(tok.Reveal()[len("stele-join-"):])
	body[0] = 2
	sum := checksum(Join, body[:len(body)-4])
	body = append(body[:len(body)-4], byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
	if _, err := Parse("stele-join-" + encodeText(body)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("version 2: %v", err)
	}
}

// holder is another package's type with tokens in its fields.
type holder struct {
	Exported Token
	private  Token
	pointer  *Token
	list     []Token
	table    map[string]Token
}

// TestNothingRevealsSecrets: TK2.
func TestNothingRevealsSecrets(t *testing.T) {
	tok := example(Access)
	h := holder{tok, tok, &tok, []Token{tok}, map[string]Token{"k": tok}}
	var log bytes.Buffer
	for _, l := range []*slog.Logger{slog.New(slog.NewTextHandler(&log, nil)), slog.New(slog.NewJSONHandler(&log, nil))} {
		l.Info("message", "token", tok, "pointer", &tok, "holder", h, "any", []any{tok}, "error", fmt.Errorf("used %v", tok))
	}
	j, err := json.Marshal(map[string]any{"token": tok, "holder": h})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(j)
	for _, verb := range "vsqxXdbotTpU" {
		for _, flag := range []string{"", "+", "#", " "} {
			all += fmt.Sprintf("%"+flag+string(verb)+"\n", tok) + fmt.Sprintf("%"+flag+string(verb)+"\n", h) + fmt.Sprintf("%"+flag+string(verb)+"\n", &h)
		}
	}
	all = strings.ToLower(all)
	text := tok.Reveal()
	for _, secret := range []string{text[30:50], "a1a1a1a1", "161 161", "0xa1, 0xa1", "241, 241", "10100001 10100001"} {
		if i := strings.Index(all, strings.ToLower(secret)); i >= 0 {
			t.Errorf("%q is in what was printed: …%s", secret, all[max(0, i-80):min(len(all), i+80)])
		}
	}
	if !strings.Contains(all, "id 0102030405060708") {
		t.Error("the token's id is missing")
	}
	if (Token{}).String() != "no token" || (Token{}).Reveal() != "" {
		t.Error("the zero token shows something")
	}
}

func TestScrub(t *testing.T) {
	join, access := New(Join, pki.Fingerprint{}, epoch, time.Hour).Reveal(), New(Access, pki.Fingerprint{}, epoch, 0).Reveal()
	broken := join[:60] + "\n   " + join[60:]
	s := Scrub("join with " + join + ", or " + strings.ToUpper(access) + "; cut " + access[:40] + " broken " + broken + " end")
	for _, secret := range []string{join[26:50], access[30:38], strings.ToUpper(access[30:38]), join[70:90]} {
		if strings.Contains(s, secret) {
			t.Errorf("%s is left in %s", secret, s)
		}
	}
	if !strings.HasPrefix(s, "join with stele-join-…, or STELE-ACCESS-…; cut") || !strings.HasSuffix(s, " end") {
		t.Errorf("more than the tokens is gone: %s", s)
	}
	for _, plain := range []string{"", "stele-join-", "a stele-access-token", "nothing"} {
		if got := Scrub(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example(Join).Reveal())
	f.Add(example(Access).Reveal())
	f.Add("stele-join-")
	f.Add(strings.Repeat("0", 106))
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := Parse(s)
		if err != nil {
			var format *FormatError
			if !errors.As(err, &format) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		again, err := Parse(tok.Reveal())
		if err != nil || !equal(again, tok) {
			t.Fatalf("%q is read again as %v, %v", s, again, err)
		}
	})
}
