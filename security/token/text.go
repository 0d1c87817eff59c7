package token

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/steledb/stele/internal/crc"
)

// FormatError means that a text is not a token. It contains nothing of the text.
type FormatError struct{ Reason string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("not a token: %s; copy all of it, from \"stele-\" to its last character", e.Reason)
}

// textBytesMax bounds the text that Parse accepts.
const textBytesMax = 1024

// alphabet is Crockford's base 32, which avoids characters that look alike.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// values maps characters to their values, in either case, with I and L for 1 and O for 0.
var values = func() (v [256]int8) {
	for i := range v {
		v[i] = -1
	}
	for i := range len(alphabet) {
		v[alphabet[i]] = int8(i)
		v[strings.ToUpper(alphabet)[i]] = int8(i)
	}
	v['i'], v['I'], v['l'], v['L'], v['o'], v['O'] = 1, 1, 1, 1, 0, 0
	return v
}()

// Parse parses the text of a token. It ignores white space anywhere, such as line breaks added by a
// mail program or a terminal, and surrounding quotes. Errors: *FormatError.
func Parse(text string) (Token, error) {
	if len(text) > textBytesMax {
		return Token{}, &FormatError{fmt.Sprintf("it has more than %d bytes", textBytesMax)}
	}
	text = strings.Trim(strings.Join(strings.Fields(text), ""), "\"'`")
	for _, kind := range []Kind{Join, Access} {
		p := prefixes[kind]
		if len(text) >= len(p) && strings.EqualFold(text[:len(p)], p) {
			return parseBody(kind, text[len(p):])
		}
	}
	return Token{}, &FormatError{"it does not begin with stele-join- or stele-access-"}
}

func parseBody(kind Kind, text string) (Token, error) {
	want := (bodyBytes*8 + 4) / 5
	if len(text) != want {
		return Token{}, &FormatError{fmt.Sprintf("it has %d characters after %s, expected %d", len(text), prefixes[kind], want)}
	}
	b, ok := decodeText(text)
	if !ok {
		return Token{}, &FormatError{"it has a character that tokens do not use"}
	}
	sum := len(b) - 4
	if binary.BigEndian.Uint32(b[sum:]) != checksum(kind, b[:sum]) {
		return Token{}, &FormatError{"a character is wrong: the checksum does not match"}
	}
	if b[0] != version {
		return Token{}, &FormatError{fmt.Sprintf("unsupported version %d, expected %d", b[0], version)}
	}
	t := Token{kind: kind}
	var secret [secretBytes]byte
	b = b[1:]
	b = b[copy(t.id[:], b):]
	b = b[copy(secret[:], b):]
	t.secret = seal(secret)
	b = b[copy(t.fingerprint[:], b):]
	if ends := int64(b[0])<<32 | int64(binary.BigEndian.Uint32(b[1:])); ends != 0 {
		t.ends = time.Unix(ends, 0).UTC()
	}
	return t, nil
}

// checksum detects typing errors. It is not a security measure.
func checksum(kind Kind, b []byte) uint32 { return crc.Sum([]byte(prefixes[kind]), b) }

// encodeText encodes five bits per character. The unused low bits of the last one are zero.
func encodeText(b []byte) string {
	out := make([]byte, 0, (len(b)*8+4)/5)
	acc, bits := uint(0), 0
	for _, c := range b {
		acc, bits = acc<<8|uint(c), bits+8
		for ; bits >= 5; bits -= 5 {
			out = append(out, alphabet[acc>>(bits-5)&31])
		}
	}
	if bits > 0 {
		out = append(out, alphabet[acc<<(5-bits)&31])
	}
	return string(out)
}

// decodeText decodes what encodeText returns. It returns false for an invalid character or nonzero
// unused bits.
func decodeText(s string) ([]byte, bool) {
	out := make([]byte, 0, len(s)*5/8)
	acc, bits := uint(0), 0
	for i := range len(s) {
		v := values[s[i]]
		if v < 0 {
			return nil, false
		}
		acc, bits = acc<<5|uint(v), bits+5
		if bits >= 8 {
			bits -= 8
			out = append(out, byte(acc>>bits))
		}
	}
	return out, acc&(1<<bits-1) == 0
}

// tokenPattern matches possible token texts, complete or truncated, also with line breaks.
var tokenPattern = regexp.MustCompile(`(?i)(stele-(?:join|access)-)[0-9a-z]{8,}(?:\s+[0-9a-z]{20,})*`)

// Scrub returns s with the secrets of all tokens removed. It is for logging untrusted texts.
func Scrub(s string) string {
	if !strings.Contains(strings.ToLower(s), "stele-") { // most texts; the regular expression takes 40 times as long
		return s
	}
	return tokenPattern.ReplaceAllString(s, "${1}…")
}
