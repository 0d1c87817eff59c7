package raftmeta

import (
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// code is the outcome of a command.
type code uint8

const (
	codeDone code = iota
	codeNotFound
	codeGeneration   // result.generation is the node's, zero if there is none
	codeIsDirectory  // result.path is the directory
	codeNotDirectory // result.path is the file
	codeNotEmpty
	codeFileBytes // result.size is the requested size, as for all limits
	codeBytes
	codeNodes
	codeBadPath // result.path and result.reason describe the error
	codeUnknown // not a command of this version; nothing was changed
	codeTerm    // the entry has a different term than the command
	codeNoSession
	codeStale
	codeEphemeral
	codeLocked // result.mode, and holder and its name in reason, or delay
	codeNotHeld
	codeSessions
	codeHolds // result.limit is the limit
	codeACLBytes
	codeNameBytes
	codeQuota // result.reason is the name of the limit
)

// result is the state machine's answer to a command.
type result struct {
	code       code
	generation uint64
	path       string
	reason     string
	size       int64
	limit      int64

	// For an acquire; generation is the lock's.
	instance uint64
	hold     uint64
	// For a rejected acquire or delete.
	mode   api.Mode
	holder api.SessionID
	delay  time.Duration
}

func badPath(path string, err error) result {
	return result{code: codeBadPath, path: path, reason: err.(*PathError).Reason}
}

// error converts a result to the error that the caller sees. want is the generation that the caller
// passed.
func (r result) error(want uint64) error {
	switch r.code {
	case codeDone:
		return nil
	case codeNotFound:
		return ErrNotFound
	case codeGeneration:
		return &GenerationError{Path: r.path, Want: want, Got: r.generation}
	case codeIsDirectory:
		return ErrIsDirectory
	case codeNotDirectory:
		return &nodeError{r.path, ErrNotDirectory}
	case codeNotEmpty:
		return ErrNotEmpty
	case codeBadPath:
		return &PathError{Path: r.path, Reason: r.reason}
	case codeTerm:
		return errOtherTerm
	case codeNoSession:
		return api.ErrNoSession
	case codeStale:
		return api.ErrStale
	case codeEphemeral:
		return api.ErrEphemeral
	case codeNotHeld:
		return api.ErrNotHeld
	case codeLocked:
		return &api.LockedError{Path: r.path, Mode: r.mode, Holder: r.holder, HolderName: r.reason, Delay: r.delay}
	}
	return r.limitError()
}

// limitError is error for the codes of limits.
func (r result) limitError() error {
	tooLarge := func(what string, limit int64) error {
		return &TooLargeError{What: what, Limit: limit, Got: r.size}
	}
	switch r.code {
	case codeFileBytes:
		return tooLarge(limitFile, FileBytesMax)
	case codeBytes:
		return tooLarge(limitBytes, NamespaceBytesMax)
	case codeNodes:
		return tooLarge(limitNodes, NodesMax)
	case codeSessions:
		return tooLarge(api.LimitSessions, api.SessionsMax)
	case codeHolds:
		return tooLarge(api.LimitHolds, r.limit)
	case codeACLBytes:
		return tooLarge(api.LimitACL, api.ACLBytesMax)
	case codeNameBytes:
		return tooLarge(api.LimitName, api.SessionNameBytesMax)
	case codeQuota:
		return tooLarge(r.reason, r.limit)
	}
	return errUnknownCommand
}

// errOtherTerm means that leadership changed before a command was stored. The command had no
// effect.
var errOtherTerm = fmt.Errorf("%w: leadership changed during the call", ErrNotReady)
