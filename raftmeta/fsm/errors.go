package fsm

import (
	"errors"
	"fmt"
)

// VersionError means that stored bytes were written by a newer program.
type VersionError struct {
	File    string // empty for an entry received from the leader
	What    string // "command", "operation", "snapshot"...
	Version uint64 // the version that was read
	Known   uint64 // the newest version that this program supports
}

func (e *VersionError) Error() string {
	s := fmt.Sprintf("%s version %d is newer than %d, the newest this program knows", e.What, e.Version, e.Known)
	if e.File != "" {
		s = e.File + ": " + s
	}
	return s
}

// nodeError is an error at a different path than the one that the caller passed.
type nodeError struct {
	path string
	err  error
}

func (e *nodeError) Error() string { return e.path + " " + e.err.Error() }
func (e *nodeError) Unwrap() error { return e.err }

// errUnknownCommand is the result of a command that this version does not know. The group has
// already failed then: see machine.
var errUnknownCommand = errors.New("unknown command in the log")
