package console

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/internal/wire"
)

// valueShown is the number of bytes of a value that are decoded and shown.
const valueShown = 4 << 10

// decodedMax is the size of a value that is decoded at all.
const decodedMax = 64 << 10

// value is a value as text.
type value struct {
	Text  string
	Kind  string // what it was decoded as
	Block bool   // of several lines
	Bytes int    // the whole value's
	More  int    // bytes that are not shown
}

// The names of decoders.
const (
	decodeAuto    = "auto"
	decodeText    = "text"
	decodeJSON    = "JSON"
	decodeInt64   = "int64"
	decodeMsgpack = "MessagePack"
	decodeHex     = "hex"
)

func decoderNames() []string {
	return []string{decodeAuto, decodeText, decodeJSON, decodeInt64, decodeMsgpack, decodeHex}
}

// decoderOf returns the decoder of a name, or nil.
func decoderOf(name string) func([]byte) value {
	try := func(kind string, decode func([]byte) (string, bool)) func([]byte) value {
		return func(b []byte) value {
			if s, ok := decode(b); ok {
				return shown(b, s, kind)
			}
			v := textValue(b)
			v.Kind = "not " + kind
			return v
		}
	}
	switch name {
	case decodeAuto:
		return guess
	case decodeText:
		return textValue
	case decodeJSON:
		return try(decodeJSON, indentJSON)
	case decodeInt64:
		return try(decodeInt64, decodeInteger)
	case decodeMsgpack:
		return try(decodeMsgpack, decodeMessagePack)
	case decodeHex:
		return func(b []byte) value {
			v := shown(b, hex.Dump(b[:min(len(b), valueShown)]), decodeHex)
			v.More = max(0, len(b)-valueShown)
			return v
		}
	}
	return nil
}

// guess shows a value as JSON or text if it is that, and otherwise as an integer of 8 bytes or as bytes.
func guess(b []byte) value {
	if len(b) > 1 && (b[0] == '{' || b[0] == '[') {
		if s, ok := indentJSON(b); ok {
			return shown(b, s, decodeJSON)
		}
	}
	if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' }) {
		if s, ok := decodeInteger(b); ok {
			return shown(b, s, decodeInt64)
		}
	}
	return textValue(b)
}

// lineMax is the length of JSON that is shown in one line.
const lineMax = 120

// shown returns a value decoded to s, shortened.
func shown(b []byte, s, kind string) value {
	v := value{Text: s, Kind: kind, Bytes: len(b)}
	if limit := 4 * valueShown; len(s) > limit {
		v.More, v.Text = len(s)-limit, strings.Clone(s[:limit]) // not to keep the rest
	}
	v.Block = bytes.ContainsRune([]byte(v.Text), '\n')
	return v
}

// looksLikeHTML reports whether a value may be an HTML page, as browsers guess.
func looksLikeHTML(b []byte) bool {
	return strings.HasPrefix(http.DetectContentType(b), "text/html")
}

// textValue shows a value as text. Lines stay lines.
func textValue(b []byte) value {
	head := b[:min(len(b), valueShown)]
	v := value{Text: text.Bytes(head), Kind: decodeText, Bytes: len(b), More: len(b) - len(head)}
	if utf8.Valid(head) && bytes.ContainsRune(head, '\n') {
		v.Text, v.Block = text.Lines(string(head)), true
	}
	return v
}

func indentJSON(b []byte) (string, bool) {
	var out bytes.Buffer
	if len(b) > decodedMax || depthOf(b) > depthMax || json.Compact(&out, b) != nil {
		return "", false
	}
	if out.Len() > lineMax {
		out.Reset()
		_ = json.Indent(&out, b, "", "  ") // as valid as before
	}
	return out.String(), true
}

// depthMax is the nesting of JSON that is indented: each line of it begins with as many indents, which would make megabytes of a few kilobytes.
const depthMax = 32

// depthOf returns the nesting of JSON.
func depthOf(b []byte) (most int) {
	depth, text := 0, false
	for i := 0; i < len(b); i++ {
		if text {
			if b[i] == '\\' {
				i++
			} else if b[i] == '"' {
				text = false
			}
			continue
		}
		switch b[i] {
		case '"':
			text = true
		case '[', '{':
			depth++
			most = max(most, depth)
		case ']', '}':
			depth--
		}
	}
	return most
}

// decodeInteger decodes a counter: 8 bytes, big-endian.
func decodeInteger(b []byte) (string, bool) {
	if len(b) != 8 {
		return "", false
	}
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(b)), 10), true
}

// decodeMessagePack decodes one object, once it is known that its lengths are true.
func decodeMessagePack(b []byte) (string, bool) {
	if len(b) > decodedMax {
		return "", false
	}
	if wire.CheckOne(b, wire.Limits{}) != nil {
		return "", false
	}
	var v any
	if msgpack.Unmarshal(b, &v) != nil {
		return "", false
	}
	out, err := json.Marshal(printable(v))
	if err != nil {
		return "", false
	}
	return indentJSON(out)
}

// printable replaces what JSON cannot have.
func printable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = printable(e)
		}
		return v
	case map[any]any:
		out := map[string]any{}
		for k, e := range v {
			out[fmt.Sprint(k)] = printable(e)
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = printable(e)
		}
		return v
	case []byte:
		return text.Bytes(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case string, bool, nil, int8, int16, int32, int64, uint8, uint16, uint32, uint64, int:
		return v
	}
	return fmt.Sprint(v)
}
