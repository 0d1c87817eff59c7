package fsm

import (
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// Code is the outcome of a command.
type Code uint8

const (
	CodeDone Code = iota
	CodeNotFound
	CodeGeneration   // Result.Generation is the node's, zero if there is none
	CodeIsDirectory  // Result.path is the directory
	CodeNotDirectory // Result.path is the file
	CodeNotEmpty
	CodeFileBytes // Result.size is the requested size, as for all limits
	CodeBytes
	CodeNodes
	CodeBadPath // Result.path and Result.reason describe the error
	CodeUnknown // not a command of this version; nothing was changed
	CodeTerm    // the entry has a different term than the command
	CodeNoSession
	CodeStale
	CodeEphemeral
	CodeLocked // Result.mode, and holder and its name in reason, or delay
	CodeNotHeld
	CodeSessions
	CodeHolds // Result.limit is the limit
	CodeACLBytes
	CodeNameBytes
	CodeQuota   // Result.reason is the name of the limit
	CodeRemoved // Result.Generation is the index of the last removal in the directory
)

// Result is the state machine's answer to a command.
type Result struct {
	Code       Code
	Generation uint64
	path       string
	reason     string
	size       int64
	limit      int64

	// For an acquire; generation is the lock's.
	Instance uint64
	Hold     uint64
	// For a rejected acquire or delete.
	mode   api.Mode
	holder api.SessionID
	delay  time.Duration
}

func badPath(path string, err error) Result {
	return Result{Code: CodeBadPath, path: path, reason: err.(*api.PathError).Reason}
}

// sentinels has the errors of codes without further fields.
var sentinels = map[Code]error{
	CodeDone:        nil,
	CodeNotFound:    api.ErrNotFound,
	CodeIsDirectory: api.ErrIsDirectory,
	CodeNotEmpty:    api.ErrNotEmpty,
	CodeTerm:        ErrOtherTerm,
	CodeNoSession:   api.ErrNoSession,
	CodeStale:       api.ErrStale,
	CodeEphemeral:   api.ErrEphemeral,
	CodeNotHeld:     api.ErrNotHeld,
}

// Err converts a result to the error that the caller sees. want is the generation that the caller
// passed.
func (r Result) Err(want uint64) error {
	if err, ok := sentinels[r.Code]; ok {
		return err
	}
	switch r.Code {
	case CodeGeneration:
		return &api.GenerationError{Path: r.path, Want: want, Got: r.Generation}
	case CodeRemoved:
		return &api.GenerationError{Path: r.path, Want: want, Removed: r.Generation}
	case CodeNotDirectory:
		return &nodeError{r.path, api.ErrNotDirectory}
	case CodeBadPath:
		return &api.PathError{Path: r.path, Reason: r.reason}
	case CodeLocked:
		return &api.LockedError{Path: r.path, Mode: r.mode, Holder: r.holder, HolderName: r.reason, Delay: r.delay}
	}
	return r.limitError()
}

// limitError is error for the codes of limits.
func (r Result) limitError() error {
	tooLarge := func(what string, limit int64) error {
		return &api.TooLargeError{What: what, Limit: limit, Got: r.size}
	}
	switch r.Code {
	case CodeFileBytes:
		return tooLarge(api.LimitFile, api.FileBytesMax)
	case CodeBytes:
		return tooLarge(api.LimitBytes, NamespaceBytesMax)
	case CodeNodes:
		return tooLarge(api.LimitNodes, NodesMax)
	case CodeSessions:
		return tooLarge(api.LimitSessions, api.SessionsMax)
	case CodeHolds:
		return tooLarge(api.LimitHolds, r.limit)
	case CodeACLBytes:
		return tooLarge(api.LimitACL, api.ACLBytesMax)
	case CodeNameBytes:
		return tooLarge(api.LimitName, api.SessionNameBytesMax)
	case CodeQuota:
		return tooLarge(r.reason, r.limit)
	}
	return errUnknownCommand
}

// ErrOtherTerm means that leadership changed before a command was stored. The command had no
// effect.
var ErrOtherTerm = fmt.Errorf("%w: leadership changed during the call", api.ErrNotReady)
