package raftmeta

import (
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// code is what came of a command.
type code uint8

const (
	codeDone code = iota
	codeNotFound
	codeGeneration   // result.generation has what was there, zero for nothing
	codeIsDirectory  // result.path is the directory
	codeNotDirectory // result.path is the file
	codeNotEmpty
	codeFileBytes // result.size has what the command wanted, as wherever there is a limit
	codeBytes
	codeNodes
	codeBadPath // result.path and result.reason say why
	codeUnknown // not a command of this version; nothing was changed
	codeTerm    // the entry is of another term than the one that decided on it
	codeNoSession
	codeStale
	codeEphemeral
	codeLocked // result.mode, holder and reason (its name), or delay, say how
	codeNotHeld
	codeSessions
	codeHolds // result.limit is the limit
	codeACLBytes
	codeNameBytes
	codeShare // result.reason is the limit's word
)

// result is the state machine's answer to a command.
type result struct {
	code       code
	generation uint64
	path       string
	reason     string
	size       int64
	limit      int64

	// Of an acquire; generation is the lock's.
	instance uint64
	hold     uint64
	// Of one that was refused.
	mode   api.Mode
	holder api.SessionID
	delay  time.Duration
}

func badPath(path string, err error) result {
	return result{code: codeBadPath, path: path, reason: err.(*PathError).Reason}
}

// error turns a result into what the caller sees, with want the generation it
// gave.
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

// limitError is error for the codes that tell of a limit.
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
	case codeShare:
		return tooLarge(r.reason, r.limit)
	}
	return errUnknownCommand
}

// errOtherTerm means that leadership changed before a command was stored. It
// did nothing.
var errOtherTerm = fmt.Errorf("%w: leadership changed under the call", ErrNotReady)
