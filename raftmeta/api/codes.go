package api

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/rpc"
)

// Error codes of the lock service. They are sent on the wire: append only.
const (
	CodePathNotFound   rpc.Code = 200
	CodeBadPath        rpc.Code = 201
	CodeIsDirectory    rpc.Code = 202
	CodeNotDirectory   rpc.Code = 203
	CodeNotEmpty       rpc.Code = 204
	CodeGeneration     rpc.Code = 205
	CodeNamespaceLimit rpc.Code = 206
	CodeNotLeader      rpc.Code = 207
	CodeNotReady       rpc.Code = 208
	CodeOutcomeUnknown rpc.Code = 209
	CodeNoSession      rpc.Code = 210
	CodeLocked         rpc.Code = 211
	CodeNotHeld        rpc.Code = 212
	CodeStaleSequencer rpc.Code = 213
	CodeEphemeral      rpc.Code = 214
	CodeLeaderDiskFull rpc.Code = 215
	CodeSuperseded     rpc.Code = 216
	CodeSystemFile     rpc.Code = 217
)

// kinds lists the errors in the order in which ToRPC matches them: an error that wraps others comes
// before the ones that it may wrap, and an unknown outcome comes first. A Service whose context has
// ended and that cannot rule out a change returns ErrOutcomeUnknown.
var kinds = errkind.Table{
	Kinds: []errkind.Kind{
		{Code: CodeOutcomeUnknown, Name: "outcome_unknown", Target: ErrOutcomeUnknown},
		{Code: CodeNotLeader, Name: "not_leader", Retryable: true, Form: notLeaderForm},
		{Code: CodeNotReady, Name: "not_ready", Retryable: true, Target: ErrNotReady},
		{Code: CodeNotReady, Name: "not_ready", Retryable: true, Target: ErrClosed},
		{Code: CodeGeneration, Name: "generation_differs", Target: ErrGeneration, Form: generationForm},
		{Code: CodePathNotFound, Name: "path_not_found", Target: ErrNotFound},
		{Code: CodeBadPath, Name: "bad_path", Target: ErrBadPath, Form: pathForm},
		{Code: CodeIsDirectory, Name: "is_directory", Target: ErrIsDirectory},
		{Code: CodeNotDirectory, Name: "not_directory", Target: ErrNotDirectory},
		{Code: CodeNotEmpty, Name: "directory_not_empty", Target: ErrNotEmpty},
		{Code: CodeNamespaceLimit, Name: "namespace_limit", Target: ErrTooLarge, Form: tooLargeForm},
		{Code: CodeNoSession, Name: "no_session", Target: ErrNoSession},
		{Code: CodeLocked, Name: "lock_held", Target: ErrLocked, Form: lockedForm},
		{Code: CodeNotHeld, Name: "lock_not_held", Target: ErrNotHeld},
		{Code: CodeStaleSequencer, Name: "stale_sequencer", Target: ErrStale},
		{Code: CodeEphemeral, Name: "file_is_ephemeral", Target: ErrEphemeral},
		{Code: CodeLeaderDiskFull, Name: "leader_disk_full", Target: ErrDiskFull},
		{Code: CodeSuperseded, Name: "keep_alive_superseded", Target: ErrSuperseded},
		{Code: CodeSystemFile, Name: "system_file", Target: ErrSystemFile, Form: systemFileForm},
		{Code: rpc.CodeDeadlineExceeded, Retryable: true, Target: context.DeadlineExceeded, NotExecuted: true},
		{Code: rpc.CodeDeadlineExceeded, Retryable: true, Target: context.Canceled, NotExecuted: true},
	},
	Meanings: map[rpc.Code]error{rpc.CodeOverloaded: ErrNotReady, rpc.CodeUnavailable: ErrNotReady},
}

func init() { kinds.Register() }

// ToRPC returns the wire error for err: the code of the first kind that err matches, the text of
// err as the message, and the fields of the typed error as details. An *rpc.Error is returned
// unchanged. An error of no known kind becomes CodeInternal.
func ToRPC(err error) *rpc.Error { return kinds.ToRPC(err) }

// FromRPC converts an *rpc.Error in err's chain to the Go errors that its code stands for, so that
// errors.Is(err, ErrNoSession) and errors.As to a *LockedError work. Other errors are returned
// unchanged.
func FromRPC(err error) error { return kinds.FromRPC(err) }

// Encoders and decoders for the details of typed errors.
var (
	pathForm = errkind.FormOf(
		func(e *PathError, d errkind.Details) { d["path"], d["reason"] = e.Path, e.Reason },
		func(a errkind.Answer) error { return &PathError{Path: a.Text("path"), Reason: a.Text("reason")} })
	systemFileForm = errkind.FormOf(
		func(e *SystemFileError, d errkind.Details) { d["path"] = e.Path },
		func(a errkind.Answer) error { return &SystemFileError{Path: a.Text("path")} })
	generationForm = errkind.FormOf(
		func(e *GenerationError, d errkind.Details) {
			d["path"], d["got"] = e.Path, e.Got
			if e.Want != AnyGeneration {
				d["want"] = e.Want
			}
			if e.Removed != 0 {
				d["removed"] = e.Removed
			}
		},
		func(a errkind.Answer) error {
			if !a.HasInt("got") {
				return ErrGeneration
			}
			e := &GenerationError{Path: a.Text("path"), Want: AnyGeneration, Got: uint64(a.Int("got"))}
			if a.HasInt("want") {
				e.Want = uint64(a.Int("want"))
			}
			if a.HasInt("removed") {
				e.Removed = uint64(a.Int("removed"))
			}
			return e
		})
	tooLargeForm = errkind.FormOf(
		func(e *TooLargeError, d errkind.Details) { d["what"], d["limit"], d["got"] = e.What, e.Limit, e.Got },
		func(a errkind.Answer) error {
			return &TooLargeError{What: a.Text("what"), Limit: a.Int("limit"), Got: a.Int("got")}
		})
	notLeaderForm = errkind.FormOf(
		func(e *NotLeaderError, d errkind.Details) {
			if e.Leader != "" {
				d["leader"] = e.Leader
			}
			if e.Address != "" {
				d["address"] = e.Address
			}
		},
		func(a errkind.Answer) error {
			return &NotLeaderError{Leader: a.Text("leader"), Address: a.Text("address")}
		})
	lockedForm = errkind.FormOf(
		func(e *LockedError, d errkind.Details) {
			d["path"], d["mode"], d["delay_ms"] = e.Path, e.Mode.String(), e.Delay.Milliseconds()
			d["holder"], d["holder_name"] = uint64(e.Holder), e.HolderName
		}, lockedOf)
)

func lockedOf(a errkind.Answer) error {
	e := &LockedError{Path: a.Text("path"), Holder: SessionID(a.Int("holder")), HolderName: a.Text("holder_name")}
	e.Delay = time.Duration(min(max(a.Int("delay_ms"), 0), timeoutMax.Milliseconds())) * time.Millisecond
	switch a.Text("mode") {
	case Exclusive.String():
		e.Mode = Exclusive
	case Shared.String():
		e.Mode = Shared
	}
	return e
}

// unknownOutcome reports whether a server's error answer to a change leaves open whether the change
// was made.
func unknownOutcome(e *rpc.Error) bool {
	switch e.Code {
	case rpc.CodeInternal, rpc.CodeTooLarge:
		return !e.Retryable
	case rpc.CodeDeadlineExceeded:
		a := errkind.Answer{Error: e}
		return !a.HasInt("executed") || a.Int("executed") != 0
	}
	return false
}
