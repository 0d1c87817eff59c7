package cli

import "github.com/steledb/stele/internal/text"

// EscapeBytes returns b as text that is safe on a terminal: printable characters, and the escapes
// \n, \r, \t, \\ and \xNN. The inverse is Unescape.
func EscapeBytes(b []byte) string { return text.Bytes(b) }

// EscapeText is EscapeBytes for a string.
func EscapeText(s string) string { return text.Escape(s) }

// AppendEscaped appends EscapeBytes(b).
func AppendEscaped(dst, b []byte) []byte { return text.AppendEscaped(dst, b) }

// EscapeLines escapes text of several lines. It keeps newlines and backslashes.
func EscapeLines(s string) string { return text.Lines(s) }

// Unescape is the inverse of EscapeBytes. An unknown escape is an error, which reveals a backslash
// that was meant literally.
func Unescape(s string) (string, error) {
	out, err := text.Unescape(s)
	if err != nil {
		return "", Usagef(`with --escaped, write \\ for a backslash, \n, \r, \t, or \xNN for any byte`, "%w", err)
	}
	return out, nil
}
