package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/steledb/stele/internal/wire"
)

// Code is the kind of error that a call ended with. Codes travel on the wire and are append-only: a
// number never gets a second meaning. Those below 100 belong to this package, the others to the
// APIs built on it.
//
// A Code is itself an error, so that callers can write errors.Is(err, rpc.CodeOverloaded).
type Code uint32

// The codes of the transport.
const (
	// CodeInternal: the server failed because of a bug or of corruption of its own data.
	CodeInternal Code = 1
	// CodeBadRequest: the request is malformed; a retry cannot help.
	CodeBadRequest Code = 2
	// CodeUnknownMethod: the server has no such method.
	CodeUnknownMethod Code = 3
	// CodeDeadlineExceeded: the deadline passed before the result was ready. The request was not
	// executed if the error's detail "executed" is 0.
	CodeDeadlineExceeded Code = 4
	// CodeOverloaded: rejected before execution; the detail retry_after_ms is the time to wait
	// before a retry, in milliseconds.
	CodeOverloaded Code = 5
	// CodeUnavailable: the server cannot serve the request now, for example while it starts or
	// stops.
	CodeUnavailable Code = 6
	// CodeTooLarge: a request or its result is over a limit.
	CodeTooLarge Code = 7
	// CodeUnauthenticated: the server could not identify the client.
	CodeUnauthenticated Code = 8
	// CodePermissionDenied: the client is identified, but lacks the right.
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

// RegisterCodes names codes from 100 on. It must be called from init functions only, because names
// are read without a lock. It panics if a code is below 100 or already has a name.
func RegisterCodes(names map[Code]string) {
	for c, name := range names {
		if old := codeNames[c]; c < 100 || old != "" {
			panic(fmt.Sprintf("BUG: code %d (%s) is taken by %q or below 100", c, name, old))
		}
		codeNames[c] = name
		codeSlots[c] = len(codeSlots)
	}
}

// codeSlots numbers the codes that have names, from 0, for counters by code.
var codeSlots = func() map[Code]int {
	slots := make(map[Code]int)
	for c := range codeNames {
		slots[c] = len(slots)
	}
	return slots
}()

// String returns the code's name, such as "overloaded", or "code_N" if it has none.
func (c Code) String() string {
	if s := codeNames[c]; s != "" {
		return s
	}
	return fmt.Sprintf("code_%d", uint32(c))
}

func (c Code) Error() string { return c.String() }

// Error is an error that crosses the wire, as a map of code, name, message, retryable and the keys
// of Details.
type Error struct {
	Code      Code
	Message   string
	Retryable bool // a retry of the same request, later or on another server, is safe and may succeed
	// Details holds fields that depend on the code, for example a limit or a new location. Values
	// are int, int64, uint64, bool, string or []byte. DecodeError returns integers as int64 and
	// skips values of other types.
	Details map[string]any
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.String()
	}
	return e.Code.String() + ": " + e.Message
}

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Errorf returns an Error that has no details and is not retryable.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AsError returns the *Error in err's chain. If there is none, it makes one: a bare Code keeps its
// number, the error of an ended context becomes CodeDeadlineExceeded, and any other error becomes
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

// Bounds of an Error when it is sent and read, so that no message or detail makes a response that
// the client rejects.
const (
	errorMessageBytesMax = 16 << 10
	errorDetailsMax      = 32
	errorDetailBytesMax  = 4 << 10
)

func appendError(enc *wire.Encoder, e *Error) {
	e.Append(enc, errorMessageBytesMax, errorDetailBytesMax)
}

// Append writes e as a map. It cuts the message to messageMax bytes and each string or bytes detail
// to detailMax bytes. Keys come in a fixed order: the four common ones, then the details sorted.
// APIs use it for errors inside results.
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

// DecodeError reads what Append writes. Other server implementations may send any value as an
// error: a value that is not a map with a code becomes CodeInternal.
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
			d.Skip() // implied by the code
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
