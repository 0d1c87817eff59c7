package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapeBytes returns b as text that is safe on a terminal and that unescape reads
// back: printable characters as they are, and \n, \r, \t, \\ and \xNN.
func escapeBytes(b []byte) string { return escapeText(string(b)) }

func escapeText(s string) string {
	if !strings.ContainsFunc(s, mustEscape) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || mustEscape(r) {
			escapeRune(&out, s[:n])
		} else {
			out.WriteString(s[:n])
		}
		s = s[n:]
	}
	return out.String()
}

func mustEscape(r rune) bool {
	// A byte that is no UTF-8 comes as RuneError; so does a real U+FFFD, which the
	// caller tells apart by its length.
	return r == '\\' || r == utf8.RuneError || r != ' ' && !unicode.IsGraphic(r) || r != ' ' && unicode.Is(unicode.Z, r)
}

func escapeRune(out *strings.Builder, s string) {
	switch s {
	case "\n":
		out.WriteString(`\n`)
	case "\r":
		out.WriteString(`\r`)
	case "\t":
		out.WriteString(`\t`)
	case `\`:
		out.WriteString(`\\`)
	case "\uFFFD":
		out.WriteString(s)
	default:
		for i := range len(s) {
			fmt.Fprintf(out, `\x%02x`, s[i])
		}
	}
}

// escapeLines is escapeText for text of several lines.
func escapeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(escapeText(line), `\\`, `\`)
	}
	return strings.Join(lines, "\n")
}

// unescape reads what escapeBytes writes. Anything else after a backslash is an
// error, so that a backslash that was meant as itself is noticed.
func unescape(s string) (string, error) {
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
			return "", usagef(`with --escaped, write \\ for a backslash, \n, \r, \t, or \xNN for any byte`, `%q: unknown escape`, `\`+after[:min(len(after), 3)])
		}
		out.WriteByte(b)
		rest = after[n:]
	}
	return out.String(), nil
}

// unescapeOne reads the escape that s, behind its backslash, begins with.
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
