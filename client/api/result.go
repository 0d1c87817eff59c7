package api

import (
	"fmt"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Bounds on the text and details of an error in a list of results.
const (
	resultMessageBytesMax = 1 << 10
	resultDetailBytesMax  = 256
)

// AppendMutateResult encodes one element of the result of mutate_rows: a timestamp as
// AppendTimestamp does, or an error in the form of an rpc.Error.
func AppendMutateResult(e *wire.Encoder, timestamp int64, err error) {
	if err == nil {
		AppendTimestamp(e, timestamp)
		return
	}
	ToRPC(err).Append(e, resultMessageBytesMax, resultDetailBytesMax)
}

// DecodeMutateResults decodes the result of a mutate_rows of n rows and calls each for every
// element: a timestamp, 0 for none, or an *rpc.Error.
func DecodeMutateResults(d *wire.Decoder, n int, each func(i int, timestamp int64, err *rpc.Error)) error {
	if got := d.Array(); got != n && d.Err() == nil {
		return malformed("%d results, want %d", got, n)
	}
	for i := range n {
		var ts int64
		var failed *rpc.Error
		if d.Peek() == wire.KindMap {
			failed = rpc.DecodeError(d)
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

// malformed returns the error of a value with an unexpected structure.
func malformed(format string, args ...any) error {
	return &table.DecodeError{Path: "result", Err: fmt.Errorf(format, args...)}
}
