package api

import (
	"errors"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/rpc"
)

// The codes of errors about logs, 320 to 339. They travel on the wire: append only.
const (
	CodeLogFenced       rpc.Code = 320
	CodeLogNoExtent     rpc.Code = 321
	CodeLogExtentExists rpc.Code = 322
	CodeLogExtentClosed rpc.Code = 323
	CodeLogGap          rpc.Code = 324
	CodeLogUncut        rpc.Code = 325
	CodeLogMismatch     rpc.Code = 326
	CodeLogShort        rpc.Code = 327
)

var logKinds = []kind{
	{CodeLogNoExtent, "log_no_extent", false, logproto.ErrNoExtent},
	{CodeLogExtentExists, "log_extent_exists", false, logproto.ErrExtentExists},
	{CodeLogExtentClosed, "log_extent_closed", false, logproto.ErrExtentClosed},
	{CodeLogGap, "log_gap", false, logproto.ErrGap},
	{CodeLogUncut, "log_uncut", false, logproto.ErrUncut},
	{CodeLogMismatch, "log_mismatch", false, logproto.ErrMismatch},
}

func init() {
	names := map[rpc.Code]string{CodeLogFenced: "log_fenced", CodeLogShort: "log_short"}
	for _, k := range logKinds {
		names[k.code] = k.name
	}
	rpc.RegisterCodes(names)
}

// logToRPC is ToRPC for the methods of logs.
func logToRPC(err error) *rpc.Error {
	var fenced *logproto.FencedError
	var short *logproto.ShortError
	var large *local.TooLargeError
	switch {
	case errors.As(err, &fenced):
		return &rpc.Error{Code: CodeLogFenced, Message: err.Error(), Details: map[string]any{"epoch": fenced.Epoch}}
	case errors.As(err, &short):
		return &rpc.Error{Code: CodeLogShort, Message: err.Error(), Details: map[string]any{"length": short.Length}}
	case errors.As(err, &large):
		return ToRPC(ErrBusy)
	}
	for i := range logKinds {
		if k := &logKinds[i]; k.matches(err) {
			return &rpc.Error{Code: k.code, Message: err.Error()}
		}
	}
	return ToRPC(err)
}

// logJudge is judge for the methods of logs.
func logJudge(err error) error {
	var e *rpc.Error
	if !errors.As(err, &e) {
		return judge(err)
	}
	n := func(key string) int64 { v, _ := integer(e.Details[key]); return v }
	switch e.Code {
	case CodeLogFenced:
		return &remoteError{e, &logproto.FencedError{Epoch: uint64(n("epoch"))}}
	case CodeLogShort:
		return &remoteError{e, &logproto.ShortError{Length: n("length")}}
	}
	for _, k := range logKinds {
		if k.code == e.Code {
			return &remoteError{e, k.target}
		}
	}
	return judge(err)
}
