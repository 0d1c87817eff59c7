package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/steledb/stele/internal/wire"
)

// Code says what kind of error a call ended with. Codes travel on the wire and
// are append-only: a number is never given a second meaning. Those below 100
// belong to this package, the others to the APIs built on it.
//
// A Code is itself an error, so that callers write errors.Is(err, rpc.CodeOverloaded).
type Code uint32

// The codes of the transport itself.
const (
	// CodeInternal: the server failed in a way that is a bug or damage of its own.
	CodeInternal Code = 1
	// CodeBadRequest: the request is malformed; sending it again cannot help.
	CodeBadRequest Code = 2
	// CodeUnknownMethod: the server has no such method.
	CodeUnknownMethod Code = 3
	// CodeDeadlineExceeded: the request's time was up before its result was ready.
	// It was not executed when the error's detail "executed" is 0.
	CodeDeadlineExceeded Code = 4
	// CodeOverloaded: refused before execution; detail retry_after_ms says how
	// many milliseconds to wait.
	CodeOverloaded Code = 5
	// CodeUnavailable: the server cannot serve this now, for example while it starts or stops.
	CodeUnavailable Code = 6
	// CodeTooLarge: a request or its result is over a limit.
	CodeTooLarge Code = 7
	// CodeUnauthenticated: the server does not know who asks.
	CodeUnauthenticated Code = 8
	// CodePermissionDenied: the server knows who asks, and refuses.
	CodePermissionDenied Code = 9
)

var codeNames = map[Code]string{
	CodeInternal:         "internal",
	CodeBadRequest:       "bad_request",
	CodeUnknownMethod:    "unknown_method",
	CodeDeadlineExceeded: "deadline_exceeded",
	CodeOverloaded:       "overloaded",
	CodeUnavailable:      "unavailable",
	CodeTooLarge:         "too_large",
	CodeUnauthenticated:  "unauthenticated",
	CodePermissionDenied: "permission_denied",
}

// RegisterCodes names codes from 100 on. An API calls it from an init function,
// never later: names are read without a lock. It panics when a code is below 100
// or has a name already.
func RegisterCodes(names map[Code]string) {
	for c, name := range names {
		if old := codeNames[c]; c < 100 || old != "" {
			panic(fmt.Sprintf("BUG: code %d (%s) is taken by %q or below 100", c, name, old))
		}
		codeNames[c] = name
	}
}

// String returns the code's name, such as "overloaded", or "code_N" for a number
// without a name.
func (c Code) String() string {
	if s := codeNames[c]; s != "" {
		return s
	}
	return fmt.Sprintf("code_%d", uint32(c))
}

func (c Code) Error() string { return c.String() }

// Error is an error that crosses the wire, as a map of code, name, message,
// retryable and the keys of Details.
type Error struct {
	Code      Code
	Message   string
	Retryable bool // sending the same request again, later or elsewhere, is safe and may help
	// Details is what the code needs, for example a limit or a new location. Values
	// are int64, uint64, int, string, []byte or bool; a reader sees int64 for
	// integers, and skips values of other types.
	Details map[string]any
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.String()
	}
	return e.Code.String() + ": " + e.Message
}

// Is makes errors.Is(err, code) true for the error's own code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Errorf returns an Error without details that is not retryable.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AsError returns the *Error in err's chain, or else makes one: a bare Code keeps
// its number, a context that ended is CodeDeadlineExceeded, anything else is
// CodeInternal with err's text.
func AsError(err error) *Error {
	var e *Error
	var c Code
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &c):
		return &Error{Code: c, Message: err.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Error{Code: CodeDeadlineExceeded, Message: err.Error()}
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}

// Bounds on an Error as sent and as read, so that no text or detail of a handler's
// can make a response that its reader refuses.
const (
	errorMessageBytesMax = 16 << 10
	errorDetailsMax      = 32
	errorDetailBytesMax  = 4 << 10
)

func appendError(enc *wire.Encoder, e *Error) {
	e.Append(enc, errorMessageBytesMax, errorDetailBytesMax)
}

// Append writes e as a map, its message and each detail cut to so many bytes. Keys come in
// a fixed order: the four of every error, then the details sorted. APIs have it write errors
// inside results.
func (e *Error) Append(enc *wire.Encoder, messageMax, detailMax int) {
	keys := slices.Sorted(maps.Keys(e.Details))
	keys = slices.DeleteFunc(keys, func(k string) bool { return !canSend(e.Details[k]) })
	keys = keys[:min(len(keys), errorDetailsMax)]
	enc.Map(4 + len(keys))
	enc.Str("code")
	enc.Uint(uint64(e.Code))
	enc.Str("name")
	enc.Str(e.Code.String())
	enc.Str("message")
	enc.Str(e.Message[:min(len(e.Message), messageMax)])
	enc.Str("retryable")
	enc.Bool(e.Retryable)
	for _, k := range keys {
		enc.Str(k)
		switch v := e.Details[k].(type) {
		case int:
			enc.Int(int64(v))
		case int64:
			enc.Int(v)
		case uint64:
			enc.Uint(v)
		case bool:
			enc.Bool(v)
		case string:
			enc.Str(v[:min(len(v), detailMax)])
		case []byte:
			enc.Bin(v[:min(len(v), detailMax)])
		}
	}
}

func canSend(v any) bool {
	switch v.(type) {
	case int, int64, uint64, bool, string, []byte:
		return true
	}
	return false
}

// DecodeError reads what Append writes. A server of another make may send
// any value as its error: what is not a map with a code becomes CodeInternal.
func DecodeError(d *wire.Decoder) *Error {
	e := &Error{Code: CodeInternal}
	switch d.Peek() {
	case wire.KindStr, wire.KindBytes:
		e.Message = d.Str()
		return e
	case wire.KindMap:
	default:
		d.Skip()
		e.Message = "error of an unknown form"
		return e
	}
	for range d.Map() {
		key := d.Bytes()
		switch string(key) {
		case "code":
			e.Code = Code(d.Uint())
		case "name":
			d.Skip() // the code says it
		case "message":
			e.Message = d.Str()
		case "retryable":
			e.Retryable = d.Bool()
		default:
			e.decodeDetail(string(key), d)
		}
	}
	return e
}

func (e *Error) decodeDetail(key string, d *wire.Decoder) {
	var v any
	switch d.Peek() {
	case wire.KindInt:
		v = d.Int()
	case wire.KindBool:
		v = d.Bool()
	case wire.KindStr:
		v = d.Str()
	case wire.KindBytes:
		v = slices.Clone(d.Bytes())
	default:
		d.Skip()
		return
	}
	if len(e.Details) >= errorDetailsMax {
		return
	}
	if e.Details == nil {
		e.Details = make(map[string]any)
	}
	e.Details[key] = v
}
