package api

import (
	"context"
	"fmt"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/rpc"
)

// Error codes about extents of blobs, 300 to 319. They are used on the wire: append only.
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

// Error codes about logs, 320 to 339. They are used on the wire: append only.
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

// CodeStaleRound is the error code of garbage collection, which has 340 to 349. They are used on
// the wire: append only.
const CodeStaleRound rpc.Code = 340

// kinds is in the order in which ToRPC tries them: a wrapping error precedes those that it may
// wrap. It is filled by init because replicaOf refers to it.
var kinds errkind.Table

func init() {
	kinds = errkind.Table{
		Kinds: []errkind.Kind{
			{Code: CodeLogFenced, Name: "log_fenced", Form: fencedForm},
			{Code: CodeLogShort, Name: "log_short", Form: shortForm},
			{Code: CodeLogNoExtent, Name: "log_no_extent", Target: logproto.ErrNoExtent},
			{Code: CodeLogExtentExists, Name: "log_extent_exists", Target: logproto.ErrExtentExists},
			{Code: CodeLogExtentClosed, Name: "log_extent_closed", Target: logproto.ErrExtentClosed},
			{Code: CodeLogGap, Name: "log_gap", Target: logproto.ErrGap},
			{Code: CodeLogUncut, Name: "log_uncut", Target: logproto.ErrUncut},
			{Code: CodeLogMismatch, Name: "log_mismatch", Target: logproto.ErrMismatch},
			{Code: CodeReplicaFailed, Name: "replica_failed", Form: replicaForm},
			{Code: CodeExtentCorrupt, Name: "extent_corrupt", Form: corruptForm},
			{Code: CodeFolderRetired, Name: "folder_retired", Target: ErrFolderRetired},
			{Code: CodeReplicaFull, Name: "replica_disk_full", Retryable: true, Target: ErrDiskFull},
			{Code: CodeNoExtent, Name: "no_extent", Target: ErrNoExtent},
			{Code: CodeExtentExists, Name: "extent_exists", Target: ErrExtentExists},
			{Code: CodeStaleHolders, Name: "stale_holders", Target: ErrStaleHolders},
			{Code: CodeStaleRound, Name: "sweep_stale_round", Target: ErrStaleRound},
			{Code: CodeNoStream, Name: "no_stream", Target: ErrNoStream},
			{Code: CodeBadStream, Name: "bad_stream", Target: ErrBadStream},
			{Code: CodeReplicaBusy, Name: "replica_busy", Retryable: true, Target: ErrBusy},
			{Code: CodeReplicaBusy, Name: "replica_busy", Retryable: true, Form: queueForm},
			{Code: rpc.CodeBadRequest, Target: ErrBadRequest},
			{Code: rpc.CodeUnavailable, Retryable: true, Target: local.ErrClosed},
			{Code: rpc.CodeUnavailable, Retryable: true, Target: ErrUnreachable},
			{Code: rpc.CodeDeadlineExceeded, Retryable: true, Target: context.DeadlineExceeded},
			{Code: rpc.CodeDeadlineExceeded, Retryable: true, Target: context.Canceled},
		},
		Meanings: map[rpc.Code]error{
			rpc.CodeOverloaded: ErrBusy, rpc.CodeUnavailable: ErrUnreachable, rpc.CodeDeadlineExceeded: ErrUnreachable,
		},
		Relayed: true,
	}
	kinds.Register()
}

// ToRPC returns the wire error for err: the code of the first kind that err matches, err's text as
// the message, and the fields of a typed error as details. An err of no known kind is CodeInternal.
func ToRPC(err error) *rpc.Error { return kinds.ToRPC(err) }

// FromRPC converts an *rpc.Error in err's chain to an error that matches the Go errors of its code.
// It returns any other error unchanged.
func FromRPC(err error) error { return kinds.FromRPC(err) }

// Details of the errors that have fields.
var (
	fencedForm = errkind.FormOf(
		func(e *logproto.FencedError, d errkind.Details) { d["epoch"] = e.Epoch },
		func(a errkind.Answer) error { return &logproto.FencedError{Epoch: uint64(a.Int("epoch"))} })
	shortForm = errkind.FormOf(
		func(e *logproto.ShortError, d errkind.Details) { d["length"] = e.Length },
		func(a errkind.Answer) error { return &logproto.ShortError{Length: a.Int("length")} })
	corruptForm = errkind.FormOf(
		func(e *CorruptError, d errkind.Details) {
			d["file"], d["offset"], d["reason"] = e.File, e.Offset, e.Reason
			d["got"], d["want"] = int64(e.Got), int64(e.Want)
		},
		func(a errkind.Answer) error {
			return &CorruptError{File: a.Text("file"), Offset: a.Int("offset"), Got: uint32(a.Int("got")), Want: uint32(a.Int("want")), Reason: a.Text("reason")}
		})
	// queueForm maps a full append queue to a busy node.
	queueForm = errkind.FormOf(func(*local.TooLargeError, errkind.Details) {}, nil)
	// replicaForm has the fields of the cause in addition to its own.
	replicaForm = errkind.FormOf(
		func(e *ReplicaError, d errkind.Details) { d["node"], d["cause"] = e.Node, int64(ToRPC(e.Err).Code) },
		replicaOf)
)

func replicaOf(a errkind.Answer) error {
	inner := rpc.Code(a.Int("cause"))
	r := &ReplicaError{Node: a.Text("node"), Err: inner}
	if inner == CodeReplicaFailed {
		return r // it does not nest
	}
	if cause := kinds.Meaning(&rpc.Error{Code: inner, Details: a.Details}); cause != nil {
		r.Err = fmt.Errorf("%w: %w", inner, cause)
	}
	return r
}
