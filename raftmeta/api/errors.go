package api

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// AnyGeneration, passed to Set or Delete, matches any content generation. For Set it also matches a
// file that does not exist.
const AnyGeneration = math.MaxUint64

var (
	// ErrNotFound means that no node exists at the path.
	ErrNotFound = errors.New("not found")

	// ErrBadPath means that a string is not a valid path. The error is a *PathError.
	ErrBadPath = errors.New("bad path")

	// ErrIsDirectory means that the path names a directory, and the call needs a file.
	ErrIsDirectory = errors.New("is a directory")

	// ErrNotDirectory means that the path names a file, and the call needs a directory.
	ErrNotDirectory = errors.New("is not a directory")

	// ErrNotEmpty means that a directory cannot be deleted because it has children.
	ErrNotEmpty = errors.New("directory is not empty")

	// ErrGeneration means that a compare-and-set found a different content generation; nothing was
	// changed. The error is a *GenerationError.
	ErrGeneration = errors.New("generation differs")

	// ErrTooLarge means that a change would exceed a limit of a file, a session or the namespace;
	// nothing was changed. The error is a *TooLargeError.
	ErrTooLarge = errors.New("too large")

	// ErrNotReady means that this server cannot serve now: it is not the leader (the error is then
	// a *NotLeaderError), it has not caught up with what was committed before its term, or its disk
	// has failed. Nothing was changed.
	ErrNotReady = errors.New("not ready")

	// ErrOutcomeUnknown means that a change was proposed and its outcome is not known: it was made,
	// may still be made, or will never be. The caller can read the path to find out.
	ErrOutcomeUnknown = errors.New("outcome unknown, the write may still commit")

	// ErrDiskFull means that the leader's disk has too little free space; nothing was changed.
	ErrDiskFull = errors.New("disk full")

	// ErrClosed means that the server or the session is closed.
	ErrClosed = errors.New("lock service closed")

	// ErrNoSession means that the session does not exist: it expired, was closed, or never existed.
	// Nothing was changed, and everything the session held is released.
	ErrNoSession = errors.New("no such session")

	// ErrSuperseded means that a KeepAlive was abandoned because its session sent another one, or
	// because its caller is gone.
	ErrSuperseded = errors.New("keep-alive superseded by a newer one")

	// ErrLocked means that the lock is held in a mode that conflicts with the requested one, or is
	// in its lock-delay. The error is a *LockedError.
	ErrLocked = errors.New("lock is held")

	// ErrNotHeld means that the session does not hold the lock.
	ErrNotHeld = errors.New("lock is not held by this session")

	// ErrStale means that a sequencer is not valid: its lock is no longer held as the sequencer
	// describes. Nothing was changed.
	ErrStale = errors.New("sequencer is stale")

	// ErrSystemFile means that a client tried to change or lock a file that belongs to the cluster.
	// Nothing was changed. The error is a *SystemFileError.
	ErrSystemFile = errors.New("file is reserved for the cluster")

	// ErrEphemeral means that the existing file is ephemeral and belongs to another session, or
	// that it is ephemeral and the call requires a permanent file, or the reverse.
	ErrEphemeral = errors.New("file is ephemeral")
)

// PathError describes why a string is not a valid path. It is an ErrBadPath.
type PathError struct {
	Path   string
	Reason string // completes the sentence "the path ..."
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

// SystemFileError means that a client tried to write, delete or lock a file that is reserved for
// nodes, such as /master. It is an ErrSystemFile. Nodes identify themselves as nodes in their
// calls. This claim is not verified here: the check protects against mistakes, not against attacks.
type SystemFileError struct{ Path string }

func (e *SystemFileError) Error() string {
	return e.Path + " is reserved for the cluster: clients can read and watch it, but only nodes can change or lock it"
}

// Is makes the error an ErrSystemFile.
func (e *SystemFileError) Is(target error) bool { return target == ErrSystemFile }

// GenerationError has the two content generations of a failed compare-and-set. It is an
// ErrGeneration, and when Got is zero also an ErrNotFound.
type GenerationError struct {
	Path string
	Want uint64 // as passed by the caller; zero: the file must not exist
	Got  uint64 // of the node; zero: no node exists
	// Removed, if not zero, is the index of the last removal in the directory, which came after SetOptions.AbsentSince.
	Removed uint64
}

func (e *GenerationError) Error() string {
	switch {
	case e.Removed != 0:
		return fmt.Sprintf("%s does not exist, and files of its directory were removed since the request was made, the last one at %d", e.Path, e.Removed)
	case e.Got == 0:
		return fmt.Sprintf("%s does not exist: expected generation %d", e.Path, e.Want)
	case e.Want == 0:
		return fmt.Sprintf("%s exists already, at generation %d", e.Path, e.Got)
	}
	return fmt.Sprintf("%s is at generation %d, not %d", e.Path, e.Got, e.Want)
}

// Is makes the error an ErrGeneration, and also an ErrNotFound if no node exists.
func (e *GenerationError) Is(target error) bool {
	return target == ErrGeneration || target == ErrNotFound && e.Got == 0
}

// TooLargeError names the limit that a change would exceed. It is an ErrTooLarge.
type TooLargeError struct {
	What       string // one of the Limit constants
	Limit, Got int64
}

func (e *TooLargeError) Error() string {
	unit, remedy := " bytes", ""
	switch e.What {
	case LimitNodes, LimitSessions, LimitWatches, LimitHolds:
		unit = ""
	case LimitUserSessions, LimitUsersSessions:
		unit, remedy = "", "; close sessions"
	case LimitUser, LimitUsers:
		remedy = "; delete files, release locks or close sessions, or give the voters more --memory"
	case LimitUserWatches, LimitUsersWatches:
		remedy = "; end watches, wait for fewer locks or close sessions, or give the voters more --memory"
	}
	return fmt.Sprintf("%s too large: %d%s, at most %d%s", e.What, e.Got, unit, e.Limit, remedy)
}

// Is makes the error an ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// NotLeaderError means that this server is not the leader of the group. It is an ErrNotReady.
type NotLeaderError struct {
	// Leader is the id of the leader, empty if unknown.
	Leader string
	// Address is where the leader answers calls, empty if unknown.
	Address string
}

func (e *NotLeaderError) Error() string {
	switch {
	case e.Leader == "":
		return "not ready: the lock service has no leader"
	case e.Address == "":
		return "not ready: the lock service is led by " + e.Leader
	}
	return fmt.Sprintf("not ready: the lock service is led by %s at %s", e.Leader, e.Address)
}

// Is makes the error an ErrNotReady.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotReady }

// LockedError names the holder of a lock. It is an ErrLocked.
type LockedError struct {
	Path string
	Mode Mode // in which the lock is held, or was held before its lock-delay
	// Holder is one of the sessions that hold the lock; zero during a lock-delay.
	Holder SessionID
	// HolderName is the name that the session was opened with.
	HolderName string
	// Delay is the full lock-delay that the lock is in, zero when the lock is held.
	Delay time.Duration
}

func (e *LockedError) Error() string {
	if e.Holder == 0 {
		return fmt.Sprintf("%s: lock is in its lock-delay of %v: the session that held it expired", e.Path, e.Delay)
	}
	return fmt.Sprintf("%s: lock is held (%s) by session %d of %s", e.Path, e.Mode, e.Holder, e.HolderName)
}

// Is makes the error an ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }
