package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bytes returns b as text of one line, safe on a terminal: printable characters, and the escapes
// \n, \r, \t, \\ and \xNN. The inverse is Unescape.
func Bytes(b []byte) string { return string(AppendEscaped(nil, b)) }

// Escape is Bytes for a string.
func Escape(s string) string {
	if !strings.ContainsFunc(s, mustEscape) {
		return s
	}
	return string(AppendEscaped(make([]byte, 0, 2*len(s)), []byte(s)))
}

// escapes is the escape of each byte.
var escapes = func() (table [256]string) {
	for c := range table {
		table[c] = fmt.Sprintf(`\x%02x`, c)
	}
	table['\n'], table['\r'], table['\t'], table['\\'] = `\n`, `\r`, `\t`, `\\`
	return table
}()

// AppendEscaped appends Bytes(b).
func AppendEscaped(dst, b []byte) []byte {
	dst = slices.Grow(dst, len(b)) // enough if nothing is escaped
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c < utf8.RuneSelf && escaped[c]:
			dst = append(dst, escapes[c]...)
			i++
		case c < utf8.RuneSelf:
			from := i
			for i++; i < len(b) && b[i] < utf8.RuneSelf && !escaped[b[i]]; i++ {
			}
			dst = append(dst, b[from:i]...)
		default:
			r, n := utf8.DecodeRune(b[i:])
			if n > 1 && (r == utf8.RuneError || !mustEscape(r)) {
				dst = append(dst, b[i:i+n]...)
			} else {
				for _, c := range b[i : i+n] {
					dst = append(dst, escapes[c]...)
				}
			}
			i += n
		}
	}
	return dst
}

// escaped reports which ASCII bytes are escaped.
var escaped = func() (table [utf8.RuneSelf]bool) {
	for c := range table {
		table[c] = c < ' ' || c == '\\' || c == 0x7f
	}
	return table
}()

func mustEscape(r rune) bool {
	// Both an invalid byte and U+FFFD decode as RuneError. AppendEscaped distinguishes them by their
	// length.
	return r == '\\' || r == utf8.RuneError || r != ' ' && !unicode.IsGraphic(r) || r != ' ' && unicode.Is(unicode.Z, r)
}

// Lines escapes text of several lines. It keeps newlines and backslashes.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(Escape(line), `\\`, `\`)
	}
	return strings.Join(lines, "\n")
}

// Unescape is the inverse of Bytes. An unknown escape is an error, which reveals a backslash
// that was meant literally.
func Unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var out strings.Builder
	for rest := s; rest != ""; {
		before, after, found := strings.Cut(rest, `\`)
		out.WriteString(before)
		if !found {
			break
		}
		b, n, ok := unescapeOne(after)
		if !ok {
			return "", fmt.Errorf(`unknown escape %q`, `\`+after[:min(len(after), 3)])
		}
		out.WriteByte(b)
		rest = after[n:]
	}
	return out.String(), nil
}

// unescapeOne decodes the escape at the start of s, after its backslash, and returns its length n.
func unescapeOne(s string) (b byte, n int, ok bool) {
	if s == "" {
		return 0, 0, false
	}
	switch s[0] {
	case 'n':
		return '\n', 1, true
	case 'r':
		return '\r', 1, true
	case 't':
		return '\t', 1, true
	case '\\':
		return '\\', 1, true
	case 'x':
		if len(s) < 3 {
			return 0, 0, false
		}
		v, err := strconv.ParseUint(s[1:3], 16, 8)
		return byte(v), 3, err == nil
	}
	return 0, 0, false
}
