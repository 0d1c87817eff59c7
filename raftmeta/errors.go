package raftmeta

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// The errors that callers far away see as well are defined in raftmeta/api.
var (
	ErrNotFound       = api.ErrNotFound
	ErrBadPath        = api.ErrBadPath
	ErrIsDirectory    = api.ErrIsDirectory
	ErrNotDirectory   = api.ErrNotDirectory
	ErrNotEmpty       = api.ErrNotEmpty
	ErrGeneration     = api.ErrGeneration
	ErrTooLarge       = api.ErrTooLarge
	ErrNotReady       = api.ErrNotReady
	ErrOutcomeUnknown = api.ErrOutcomeUnknown
	ErrDiskFull       = api.ErrDiskFull
	ErrClosed         = api.ErrClosed
)

// The same of types.
type (
	// PathError says why a string cannot be a path.
	PathError = api.PathError
	// GenerationError tells the two content generations that differ.
	GenerationError = api.GenerationError
	// TooLargeError names the limit that a change would pass.
	TooLargeError = api.TooLargeError
	// NotLeaderError names the server that leads.
	NotLeaderError = api.NotLeaderError
)

var (
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

	// ErrLogReplaced means that the leader's snapshot replaced a log that went
	// beyond it with entries that were never committed. Everything is on disk;
	// the server has to be started again to go on from the snapshot.
	ErrLogReplaced = errors.New("log replaced by a snapshot: start the server again")
)

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

// GapError means that log entries were refused because they do not follow the
// end of the log.
type GapError struct {
	Index, Want uint64 // of the entry that was refused, and of the one that follows
}

func (e *GapError) Error() string {
	return fmt.Sprintf("store log entry %d: the next entry is %d", e.Index, e.Want)
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
