package raftmeta

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotFound means that no node has that path.
	ErrNotFound = errors.New("not found")

	// ErrBadPath means that a string cannot be a path. The error is a
	// *PathError.
	ErrBadPath = errors.New("bad path")

	// ErrIsDirectory means that a directory stands where a file was wanted.
	ErrIsDirectory = errors.New("is a directory")

	// ErrNotDirectory means that a file stands where a directory was wanted.
	ErrNotDirectory = errors.New("is not a directory")

	// ErrNotEmpty means that a directory to be deleted has children.
	ErrNotEmpty = errors.New("directory is not empty")

	// ErrGeneration means that a compare-and-set found another content
	// generation than it was given; nothing was changed. The error is a
	// *GenerationError.
	ErrGeneration = errors.New("generation differs")

	// ErrTooLarge means that a file, or with it the namespace, would be over
	// its limit; nothing was changed. The error is a *TooLargeError.
	ErrTooLarge = errors.New("too large")

	// ErrNotReady means that this server cannot serve now: it is not the
	// leader, or has not caught up with what was committed before it became
	// so, or its disk has failed. Nothing was changed. WaitReady waits for it
	// to pass.
	ErrNotReady = errors.New("not ready")

	// ErrOutcomeUnknown means that a change was handed to the log and its
	// fate was not learnt: it may have been made, or may yet be, or never.
	// Read the path to find out.
	ErrOutcomeUnknown = errors.New("outcome unknown, the write may still commit")

	// ErrDiskFull means that less space is left on the disk than
	// Config.ReserveBytes; nothing was changed.
	ErrDiskFull = errors.New("disk full")

	// ErrClosed means that the group was closed.
	ErrClosed = errors.New("group closed")

	// ErrWrongServer means that the folder belongs to a server with another
	// id.
	ErrWrongServer = errors.New("folder belongs to another server")

	// ErrNoStreams means that the group has several voters and Config.Streams
	// is nil.
	ErrNoStreams = errors.New("a group of several voters needs streams")

	// ErrCorrupt means that stored bytes are not what was written. The error
	// is a *CorruptError.
	ErrCorrupt = errors.New("corrupt data")

	// ErrStalled means that the disk did not finish a write in
	// Config.StallTimeout. The error is a *DiskError.
	ErrStalled = errors.New("disk stalled")
)

// PathError says why a string cannot be a path. It is an ErrBadPath.
type PathError struct {
	Path   string
	Reason string // completes "the path ..."
}

func (e *PathError) Error() string {
	p := e.Path
	if len(p) > 80 {
		p = p[:80] + "..."
	}
	return fmt.Sprintf("bad path %q: it %s", p, e.Reason)
}

// Is makes the error an ErrBadPath.
func (e *PathError) Is(target error) bool { return target == ErrBadPath }

// GenerationError tells the two content generations that differ. It is an
// ErrGeneration, and when Got is zero an ErrNotFound as well.
type GenerationError struct {
	Path string
	Want uint64 // what the caller gave; zero: the file must not exist
	Got  uint64 // what was there; zero: no such node
}

func (e *GenerationError) Error() string {
	switch {
	case e.Got == 0:
		return fmt.Sprintf("%s does not exist, but generation %d of it was given", e.Path, e.Want)
	case e.Want == 0:
		return fmt.Sprintf("%s exists already, at generation %d", e.Path, e.Got)
	}
	return fmt.Sprintf("%s is at generation %d, not %d", e.Path, e.Got, e.Want)
}

// Is makes the error an ErrGeneration, and an ErrNotFound when nothing is
// there.
func (e *GenerationError) Is(target error) bool {
	return target == ErrGeneration || target == ErrNotFound && e.Got == 0
}

// TooLargeError names the limit that a change would pass. It is an
// ErrTooLarge.
type TooLargeError struct {
	What       string // "file", in bytes; "namespace", in bytes; "namespace nodes"
	Limit, Got int64
}

func (e *TooLargeError) Error() string {
	unit := " bytes"
	if e.What == limitNodes {
		unit = ""
	}
	return fmt.Sprintf("%s too large: %d%s, at most %d", e.What, e.Got, unit, e.Limit)
}

// Is makes the error an ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// CorruptError locates stored bytes that are not what was written. It is an
// ErrCorrupt.
type CorruptError struct {
	File   string
	Offset int64 // in bytes, of the smallest part known to be bad
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt data in %s at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Is makes the error an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// VersionError means that stored bytes were written by a newer program.
type VersionError struct {
	File    string // empty for an entry that came from the leader
	What    string // "command", "operation", "snapshot"...
	Version uint64 // what was found
	Known   uint64 // the newest that this program knows
}

func (e *VersionError) Error() string {
	s := fmt.Sprintf("%s version %d is newer than %d, the newest this program knows", e.What, e.Version, e.Known)
	if e.File != "" {
		s = e.File + ": " + s
	}
	return s
}

// DiskError means that the disk under the folder has failed or stalled. The
// group acknowledges nothing from then on: a failed fsync must not be tried
// again, since the kernel may have dropped the very pages that it could not
// write.
type DiskError struct {
	Op    string        // what was being done: "store log entries"...
	After time.Duration // how long it took
	Err   error         // ErrStalled, or what the operating system said
}

func (e *DiskError) Error() string {
	return fmt.Sprintf("%s: %v (after %v)", e.Op, e.Err, e.After.Round(time.Millisecond))
}

func (e *DiskError) Unwrap() error { return e.Err }

// nodeError is err at another path than the one that the caller named.
type nodeError struct {
	path string
	err  error
}

func (e *nodeError) Error() string { return e.path + " " + e.err.Error() }
func (e *nodeError) Unwrap() error { return e.err }

// errUnknownCommand is the answer to a command that this version does not
// know. The group has failed by then: see machine.
var errUnknownCommand = errors.New("unknown command in the log")
