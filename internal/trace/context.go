package trace

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// ID identifies a trace: 16 bytes, 32 hexadecimal digits as text. The zero ID is none.
type ID [16]byte

// SpanID identifies a span of a trace: 8 bytes, 16 hexadecimal digits as text. The zero SpanID is none.
type SpanID [8]byte

// String returns the ID in hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// String returns the SpanID in hexadecimal digits.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

// NewID returns a random ID.
func NewID() (id ID) {
	for id == (ID{}) {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// NewSpanID returns a random SpanID.
func NewSpanID() (id SpanID) {
	for id == (SpanID{}) {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// Context is a place in a trace: the trace, the span that causes a request, and whether the caller records its part. The zero Context is
// none.
type Context struct {
	ID      ID
	Span    SpanID
	Sampled bool
}

// The form of a W3C traceparent: version, ID, SpanID, flags.
const (
	traceparentLen = 55
	versionLen     = 2
	idAt           = 3
	spanAt         = 36
	flagsAt        = 53
	sampledFlag    = 1
)

// Parse reads a traceparent, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01. It reports false for other text. Later versions
// may be longer, and are read like this one, as the W3C demands.
func Parse[T string | []byte](s T) (c Context, ok bool) {
	if len(s) < traceparentLen || s[versionLen] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !digits(version[:], s[:versionLen]) || !digits(c.ID[:], s[idAt:spanAt-1]) || !digits(c.Span[:], s[spanAt:flagsAt-1]) || !digits(flags[:], s[flagsAt:traceparentLen]) {
		return Context{}, false
	}
	later := version[0] > 0 && version[0] < 0xff
	if c.ID == (ID{}) || c.Span == (SpanID{}) || !later && (version[0] != 0 || len(s) != traceparentLen) || later && len(s) > traceparentLen && s[traceparentLen] != '-' {
		return Context{}, false
	}
	c.Sampled = flags[0]&sampledFlag != 0
	return c, true
}

// ParseID reads an ID. It reports false for other text.
func ParseID(s string) (id ID, ok bool) { return id, digits(id[:], s) && id != (ID{}) }

// digits decodes lower-case hexadecimal digits that fill p exactly.
func digits[T string | []byte](p []byte, s T) bool {
	if len(s) != 2*len(p) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return false
		}
		p[i/2] = p[i/2]<<4 | c
	}
	return true
}

// String returns the traceparent.
func (c Context) String() string {
	flags := "-00"
	if c.Sampled {
		flags = "-01"
	}
	return "00-" + c.ID.String() + "-" + c.Span.String() + flags
}
