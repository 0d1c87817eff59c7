package api

import (
	"fmt"
	"maps"
	"slices"

	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Bounds on the text and details of one error among many.
const (
	resultMessageBytesMax = 1 << 10
	resultDetailBytesMax  = 256
)

// AppendMutateResult writes one element of the result of mutate_rows: as
// AppendTimestamp does, or the error in the form that a call's own error has.
func AppendMutateResult(e *wire.Encoder, timestamp int64, err error) {
	if err == nil {
		AppendTimestamp(e, timestamp)
		return
	}
	appendError(e, ToRPC(err))
}

// appendError writes an error as the map that docs/rpc.md describes. It is for
// errors inside results; package rpc writes those of whole calls.
func appendError(e *wire.Encoder, err *rpc.Error) {
	keys := slices.Sorted(maps.Keys(err.Details))
	keys = slices.DeleteFunc(keys, func(k string) bool {
		_, isInt := errkind.Integer(err.Details[k])
		_, isText := err.Details[k].(string)
		return !isInt && !isText
	})
	e.Map(4 + len(keys))
	e.Str("code")
	e.Uint(uint64(err.Code))
	e.Str("name")
	e.Str(err.Code.String())
	e.Str("message")
	e.Str(err.Message[:min(len(err.Message), resultMessageBytesMax)])
	e.Str("retryable")
	e.Bool(err.Retryable)
	for _, k := range keys {
		e.Str(k)
		if n, ok := errkind.Integer(err.Details[k]); ok {
			e.Int(n)
			continue
		}
		s := err.Details[k].(string)
		e.Str(s[:min(len(s), resultDetailBytesMax)])
	}
}

// DecodeMutateResults reads the result of a mutate_rows of n rows and hands on each
// element: a timestamp, 0 for none, or an *rpc.Error as it came.
func DecodeMutateResults(d *wire.Decoder, n int, each func(i int, timestamp int64, err *rpc.Error)) error {
	if got := d.Array(); got != n && d.Err() == nil {
		return malformed("%d results, want %d", got, n)
	}
	for i := range n {
		var ts int64
		var failed *rpc.Error
		if d.Peek() == wire.KindMap {
			failed = decodeError(d)
		} else {
			ts = DecodeTimestamp(d)
		}
		if err := d.Err(); err != nil {
			return err
		}
		each(i, ts, failed)
	}
	return nil
}

func decodeError(d *wire.Decoder) *rpc.Error {
	e := &rpc.Error{Code: rpc.CodeInternal}
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "code":
			e.Code = rpc.Code(d.Uint())
		case "message":
			e.Message = d.Str()
		case "retryable":
			e.Retryable = d.Bool()
		case "name":
			d.Skip()
		default:
			if e.Details == nil {
				e.Details = make(map[string]any)
			}
			switch d.Peek() {
			case wire.KindInt:
				e.Details[string(key)] = d.Int()
			case wire.KindStr:
				e.Details[string(key)] = d.Str()
			default:
				d.Skip()
			}
		}
	}
	return e
}

// malformed is the error of a value that is not built as its place asks.
func malformed(format string, args ...any) error {
	return &table.DecodeError{Path: "result", Err: fmt.Errorf(format, args...)}
}
