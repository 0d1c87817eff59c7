package token

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/steledb/stele/internal/crc"
)

// FormatError is about text that is no token. It holds nothing of the text.
type FormatError struct{ Reason string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("not a token: %s; copy all of it, from \"stele-\" to its last character", e.Reason)
}

// textBytesMax bounds the text that Parse looks at.
const textBytesMax = 1024

// alphabet is Crockford's base 32, in which no two characters look alike.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// values are the values of characters: as people write them, in either case, with I
// and L for 1 and O for 0.
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

// Parse reads a token's text. White space anywhere in it, such as where a mail or a
// terminal has broken the line, and quotes around it do not matter. Errors: *FormatError.
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
		return Token{}, &FormatError{fmt.Sprintf("it has %d characters after %s, and must have %d", len(text), prefixes[kind], want)}
	}
	b, ok := decodeText(text)
	if !ok {
		return Token{}, &FormatError{"a character is none of a token's"}
	}
	sum := len(b) - 4
	if binary.BigEndian.Uint32(b[sum:]) != checksum(kind, b[:sum]) {
		return Token{}, &FormatError{"a character is wrong: its checksum does not fit"}
	}
	if b[0] != version {
		return Token{}, &FormatError{fmt.Sprintf("it is of version %d, this program knows %d", b[0], version)}
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

// checksum tells slips of the hand; it is no protection.
func checksum(kind Kind, b []byte) uint32 { return crc.Sum([]byte(prefixes[kind]), b) }

// encodeText writes five bits a character, the last one's lowest being zero.
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

// decodeText reads what encodeText writes. False: a character that is none, or bits at
// the end that should be zero.
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

// loose finds what may be the text of a token, whole or cut, also broken into lines.
var loose = regexp.MustCompile(`(?i)(stele-(?:join|access)-)[0-9a-z]{8,}(?:\s+[0-9a-z]{20,})*`)

// Scrub returns s with the secrets of all tokens in it cut out: for texts of others
// that go to a log.
func Scrub(s string) string {
	if !strings.Contains(strings.ToLower(s), "stele-") { // most texts: the search below takes 40 times as long
		return s
	}
	return loose.ReplaceAllString(s, "${1}…")
}
