package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// The codes of errors about extents of blobs, 300 to 319. They travel on the wire: append
// only.
const (
	CodeNoExtent      rpc.Code = 300
	CodeExtentExists  rpc.Code = 301
	CodeStaleHolders  rpc.Code = 302
	CodeNoStream      rpc.Code = 303
	CodeBadStream     rpc.Code = 304
	CodeReplicaBusy   rpc.Code = 305
	CodeReplicaFull   rpc.Code = 306
	CodeFolderRetired rpc.Code = 307
	CodeReplicaFailed rpc.Code = 308
	CodeExtentCorrupt rpc.Code = 309
)

// A kind ties a code to the Go error that it stands for.
type kind struct {
	code      rpc.Code
	name      string // empty for the codes of rpc, which have names
	retryable bool   // refused before execution: the same request may succeed later or elsewhere
	target    error  // what errors.Is tells the kind by
}

// errReplica and errCorrupt stand for any error of those types.
var (
	errReplica = errors.New("replica failed")
	errCorrupt = errors.New("extent corrupt")
)

// kinds is in the order in which ToRPC tries them: what wraps comes before what it may
// wrap.
var kinds = []kind{
	{CodeReplicaFailed, "replica_failed", false, errReplica},
	{CodeExtentCorrupt, "extent_corrupt", false, errCorrupt},
	{CodeFolderRetired, "folder_retired", false, ErrFolderRetired},
	{CodeReplicaFull, "replica_disk_full", true, ErrDiskFull},
	{CodeNoExtent, "no_extent", false, ErrNoExtent},
	{CodeExtentExists, "extent_exists", false, ErrExtentExists},
	{CodeStaleHolders, "stale_holders", false, ErrStaleHolders},
	{CodeNoStream, "no_stream", false, ErrNoStream},
	{CodeBadStream, "bad_stream", false, ErrBadStream},
	{CodeReplicaBusy, "replica_busy", true, ErrBusy},
	{rpc.CodeBadRequest, "", false, ErrBadRequest},
	{rpc.CodeUnavailable, "", true, local.ErrClosed},
	{rpc.CodeUnavailable, "", true, ErrUnreachable},
	{rpc.CodeDeadlineExceeded, "", true, context.DeadlineExceeded},
	{rpc.CodeDeadlineExceeded, "", true, context.Canceled},
}

func init() {
	names := make(map[rpc.Code]string)
	for _, k := range kinds {
		if k.name != "" {
			names[k.code] = k.name
		}
	}
	rpc.RegisterCodes(names)
}

func (k *kind) matches(err error) bool {
	switch k.target {
	case errReplica:
		var e *ReplicaError
		return errors.As(err, &e)
	case errCorrupt:
		var e *CorruptError
		return errors.As(err, &e)
	}
	return errors.Is(err, k.target)
}

// ToRPC returns the error that a server answers with for err: the code of the first
// kind that err matches, err's text as the message, and the fields of the typed error as
// details. An err of no known kind is CodeInternal.
func ToRPC(err error) *rpc.Error {
	for i := range kinds {
		if k := &kinds[i]; k.matches(err) {
			return &rpc.Error{Code: k.code, Message: err.Error(), Retryable: k.retryable, Details: details(err)}
		}
	}
	var bad *wire.FormatError
	if errors.As(err, &bad) {
		return &rpc.Error{Code: rpc.CodeBadRequest, Message: err.Error()}
	}
	return rpc.AsError(err)
}

func details(err error) map[string]any {
	var replica *ReplicaError
	var corrupt *CorruptError
	switch {
	case errors.As(err, &replica):
		cause := ToRPC(replica.Err)
		d := map[string]any{"node": replica.Node, "cause": int64(cause.Code)}
		for k, v := range cause.Details {
			if k != "node" && k != "cause" {
				d[k] = v
			}
		}
		return d
	case errors.As(err, &corrupt):
		return map[string]any{"file": corrupt.File, "offset": corrupt.Offset, "got": int64(corrupt.Got), "want": int64(corrupt.Want), "reason": corrupt.Reason}
	}
	return nil
}

// remoteError is an error that a server answered with. Its text is the server's;
// errors.Is and errors.As find both the *rpc.Error and the Go error that its code
// stands for.
type remoteError struct {
	rpc   *rpc.Error
	cause error
}

func (e *remoteError) Error() string {
	if e.rpc.Message != "" {
		return e.rpc.Message
	}
	return e.rpc.Error()
}

func (e *remoteError) Unwrap() []error { return []error{e.cause, e.rpc} }

// FromRPC turns an *rpc.Error in err's chain into one that matches the Go errors that its
// code stands for. Any other error is returned as it is.
func FromRPC(err error) error {
	var e *rpc.Error
	if !errors.As(err, &e) {
		return err
	}
	if cause := causeOf(e.Code, e); cause != nil {
		return &remoteError{e, cause}
	}
	return err
}

// causeOf returns the Go error that a code stands for, with the details of e; nil for a
// code that has none.
func causeOf(code rpc.Code, e *rpc.Error) error {
	text := func(key string) string { s, _ := e.Details[key].(string); return s }
	num := func(key string) int64 { n, _ := integer(e.Details[key]); return n }
	switch code {
	case CodeReplicaFailed:
		inner := rpc.Code(num("cause"))
		r := &ReplicaError{Node: text("node"), Err: inner}
		if inner == CodeReplicaFailed {
			return r // it does not nest
		}
		if cause := causeOf(inner, e); cause != nil {
			r.Err = fmt.Errorf("%w: %w", inner, cause)
		}
		return r
	case CodeExtentCorrupt:
		return &CorruptError{File: text("file"), Offset: num("offset"), Got: uint32(num("got")), Want: uint32(num("want")), Reason: text("reason")}
	case rpc.CodeUnavailable, rpc.CodeDeadlineExceeded:
		return ErrUnreachable
	case rpc.CodeOverloaded:
		return ErrBusy
	}
	for _, k := range kinds {
		if k.code == code {
			return k.target
		}
	}
	return nil
}

// integer reads a detail that came over the wire, or from an Error made here.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case uint64:
		return int64(v), true
	}
	return 0, false
}
