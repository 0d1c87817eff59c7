package api

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// The codes of the lock service's errors. They travel on the wire: append only.
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
)

// A kind ties a code to the Go error that it stands for.
type kind struct {
	code      rpc.Code
	name      string // empty for the codes of rpc, which have names
	retryable bool   // refused before execution: the same request may succeed later or elsewhere
	target    error  // what errors.Is tells the kind by
}

// errNotLeader stands for any NotLeaderError.
var errNotLeader = errors.New("not the leader")

// kinds is in the order in which ToRPC tries them: what wraps comes before what
// it may wrap, and an unknown outcome before everything.
var kinds = []kind{
	{CodeOutcomeUnknown, "outcome_unknown", false, ErrOutcomeUnknown},
	{CodeNotLeader, "not_leader", true, errNotLeader},
	{CodeNotReady, "not_ready", true, ErrNotReady},
	{CodeNotReady, "not_ready", true, ErrClosed},
	{CodeGeneration, "generation_differs", false, ErrGeneration},
	{CodePathNotFound, "path_not_found", false, ErrNotFound},
	{CodeBadPath, "bad_path", false, ErrBadPath},
	{CodeIsDirectory, "is_directory", false, ErrIsDirectory},
	{CodeNotDirectory, "not_directory", false, ErrNotDirectory},
	{CodeNotEmpty, "directory_not_empty", false, ErrNotEmpty},
	{CodeNamespaceLimit, "namespace_limit", false, ErrTooLarge},
	{CodeNoSession, "no_session", false, ErrNoSession},
	{CodeLocked, "lock_held", false, ErrLocked},
	{CodeNotHeld, "lock_not_held", false, ErrNotHeld},
	{CodeStaleSequencer, "stale_sequencer", false, ErrStale},
	{CodeEphemeral, "file_is_ephemeral", false, ErrEphemeral},
	{CodeLeaderDiskFull, "leader_disk_full", false, ErrDiskFull},
	{CodeSuperseded, "keep_alive_superseded", false, ErrSuperseded},
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
	if k.target == errNotLeader {
		var e *NotLeaderError
		return errors.As(err, &e)
	}
	return errors.Is(err, k.target)
}

// ToRPC returns the error that a server answers with for err: the code of the
// first kind that err matches, err's text as the message, and the fields of the
// typed error as details. An err that is an *rpc.Error already stays as it is. An
// err of no known kind is CodeInternal.
func ToRPC(err error) *rpc.Error {
	var done *rpc.Error
	if errors.As(err, &done) {
		return done
	}
	for i := range kinds {
		if k := &kinds[i]; k.matches(err) {
			e := &rpc.Error{Code: k.code, Message: err.Error(), Retryable: k.retryable, Details: details(err)}
			if k.code == rpc.CodeDeadlineExceeded {
				// A Service that cannot rule out a change says ErrOutcomeUnknown.
				e.Details = map[string]any{"executed": 0}
			}
			return e
		}
	}
	var bad *wire.FormatError
	if errors.As(err, &bad) {
		return &rpc.Error{Code: rpc.CodeBadRequest, Message: err.Error()}
	}
	return rpc.AsError(err)
}

// details returns the fields of the typed error in err's chain.
func details(err error) map[string]any {
	var path *PathError
	var gen *GenerationError
	var large *TooLargeError
	var leader *NotLeaderError
	var locked *LockedError
	switch {
	case errors.As(err, &path):
		return map[string]any{"path": path.Path, "reason": path.Reason}
	case errors.As(err, &gen):
		d := map[string]any{"path": gen.Path, "got": gen.Got}
		if gen.Want != AnyGeneration {
			d["want"] = gen.Want
		}
		return d
	case errors.As(err, &large):
		return map[string]any{"what": large.What, "limit": large.Limit, "got": large.Got}
	case errors.As(err, &leader):
		d := make(map[string]any)
		if leader.Leader != "" {
			d["leader"] = leader.Leader
		}
		if leader.Address != "" {
			d["address"] = leader.Address
		}
		return d
	case errors.As(err, &locked):
		return map[string]any{
			"path": locked.Path, "mode": locked.Mode.String(), "holder": uint64(locked.Holder),
			"holder_name": locked.HolderName, "delay_ms": locked.Delay.Milliseconds(),
		}
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

// FromRPC turns an *rpc.Error in err's chain into one that matches the Go errors
// that its code stands for: errors.Is(err, ErrNoSession), errors.As into a
// *LockedError, and so on. Any other error is returned as it is.
func FromRPC(err error) error {
	var e *rpc.Error
	if !errors.As(err, &e) {
		return err
	}
	if cause := causeOf(e); cause != nil {
		return &remoteError{e, cause}
	}
	return err
}

// causeOf returns the Go error that e stands for, with its details; nil for a code
// that has none.
func causeOf(e *rpc.Error) error {
	text := func(key string) string { s, _ := e.Details[key].(string); return s }
	num := func(key string) int64 { n, _ := integer(e.Details[key]); return n }
	switch e.Code {
	case CodeBadPath:
		return &PathError{Path: text("path"), Reason: text("reason")}
	case CodeGeneration:
		if e.Details["got"] == nil {
			return ErrGeneration
		}
		g := &GenerationError{Path: text("path"), Want: AnyGeneration, Got: uint64(num("got"))}
		if want, ok := integer(e.Details["want"]); ok {
			g.Want = uint64(want)
		}
		return g
	case CodeNamespaceLimit:
		return &TooLargeError{What: text("what"), Limit: num("limit"), Got: num("got")}
	case CodeNotLeader:
		return &NotLeaderError{Leader: text("leader"), Address: text("address")}
	case CodeLocked:
		l := &LockedError{Path: text("path"), Holder: SessionID(num("holder")), HolderName: text("holder_name")}
		l.Delay = time.Duration(min(max(num("delay_ms"), 0), timeoutMax.Milliseconds())) * time.Millisecond
		switch text("mode") {
		case Exclusive.String():
			l.Mode = Exclusive
		case Shared.String():
			l.Mode = Shared
		}
		return l
	case rpc.CodeOverloaded, rpc.CodeUnavailable:
		return ErrNotReady
	}
	for _, k := range kinds {
		if k.code == e.Code {
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

// unknownOutcome tells whether an error that a server answered a change with leaves
// open whether the change was made.
func unknownOutcome(e *rpc.Error) bool {
	switch e.Code {
	case rpc.CodeInternal, rpc.CodeTooLarge:
		return !e.Retryable
	case rpc.CodeDeadlineExceeded:
		executed, ok := integer(e.Details["executed"])
		return !ok || executed != 0
	}
	return false
}
