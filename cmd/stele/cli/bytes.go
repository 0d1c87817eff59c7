package cli

import (
	"encoding/base64"
	"unicode/utf8"
)

// Byte strings (row keys, columns, values) always have the same form in JSON. For a name N, N_base64
// is always present and contains the bytes in standard base64; N is present if the bytes are text (see
// isText). Both are strings, so that a program can read either without checking the other.

// isText reports whether b is UTF-8 without control characters other than tab, newline and carriage
// return.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f {
			return false
		}
	}
	if !utf8.Valid(b) {
		return false
	}
	for i := 0; i+1 < len(b); i++ {
		if b[i] == 0xc2 && b[i+1] < 0xa0 { // U+0080 to U+009F, the C1 control characters
			return false
		}
	}
	return true
}

// AppendJSONField appends the fields of the byte string b: "name":"…","name_base64":"…", or only the
// second. name is ASCII without characters that need escapes.
func AppendJSONField(dst []byte, name string, b []byte) []byte {
	if isText(b) {
		dst = append(append(append(dst, '"'), name...), `":`...)
		dst = append(AppendJSONString(dst, b), ',')
	}
	dst = append(append(append(dst, '"'), name...), `_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// AppendJSONString appends b, which must be UTF-8, as a JSON string.
func AppendJSONString(dst, b []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0 // b[plain:i] needs no escape
	for i := 0; i < len(b); i++ {
		c, n := b[i], 1
		switch {
		case c == 0xe2 && i+2 < len(b) && b[i+1] == 0x80 && b[i+2]|1 == 0xa9: // U+2028 and U+2029 end a line of JavaScript
			n = 3
		case c >= ' ' && c != '"' && c != '\\' && c != 0x7f:
			continue
		}
		dst = append(dst, b[plain:i]...)
		switch {
		case n == 3:
			dst = append(dst, '\\', 'u', '2', '0', '2', '0'+b[i+2]&15)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i += n - 1
		plain = i + 1
	}
	return append(append(dst, b[plain:]...), '"')
}

// TextOf returns b as a string if it is text, and nil otherwise.
func TextOf(b []byte) *string {
	if !isText(b) {
		return nil
	}
	s := string(b)
	return &s
}

// BytesOf returns b, or an empty slice for nil, which JSON encodes as "" and not as null.
func BytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// The fields of byte strings, for embedding in structs.
type (
	RowJSON struct {
		Row      *string `json:"row,omitempty"`
		RowBytes []byte  `json:"row_base64"`
	}
	ColumnJSON struct {
		Column      *string `json:"column,omitempty"` // family:qualifier
		ColumnBytes []byte  `json:"column_base64"`
	}
	// BoundsJSON is the range of a tablet. An empty bound means no bound.
	BoundsJSON struct {
		Start      *string `json:"start,omitempty"`
		StartBytes []byte  `json:"start_base64"`
		End        *string `json:"end,omitempty"`
		EndBytes   []byte  `json:"end_base64"`
	}
)

// RowOf returns the fields of a row key.
func RowOf(key string) RowJSON { return RowJSON{TextOf([]byte(key)), []byte(key)} }

// ColumnOf returns the fields of a column, family:qualifier.
func ColumnOf(name string) ColumnJSON { return ColumnJSON{TextOf([]byte(name)), []byte(name)} }

// BoundsOf returns the fields of a tablet's range.
func BoundsOf(start, end []byte) BoundsJSON {
	return BoundsJSON{TextOf(start), BytesOf(start), TextOf(end), BytesOf(end)}
}
