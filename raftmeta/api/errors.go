package api

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// AnyGeneration, given to Set or Delete, matches any content generation, and
// for Set a file that does not exist.
const AnyGeneration = math.MaxUint64

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
	// leader (a *NotLeaderError then), or has not caught up with what was
	// committed before it became so, or its disk has failed. Nothing was
	// changed.
	ErrNotReady = errors.New("not ready")

	// ErrOutcomeUnknown means that a change was handed to the log and its
	// fate was not learnt: it may have been made, or may yet be, or never.
	// Read the path to find out.
	ErrOutcomeUnknown = errors.New("outcome unknown, the write may still commit")

	// ErrDiskFull means that too little space is left on the leader's disk;
	// nothing was changed.
	ErrDiskFull = errors.New("disk full")

	// ErrClosed means that the server, or the session, was closed.
	ErrClosed = errors.New("lock service closed")

	// ErrNoSession means that there is no such session: it expired, was
	// closed, or never was. Nothing was changed, and what it held is free.
	ErrNoSession = errors.New("no such session")

	// ErrSuperseded means that a KeepAlive was given up since its session has
	// sent another one.
	ErrSuperseded = errors.New("keep-alive superseded by a newer one")

	// ErrLocked means that a lock is held in a mode that excludes the one
	// asked for, or is in its lock-delay. The error is a *LockedError.
	ErrLocked = errors.New("lock is held")

	// ErrNotHeld means that the session does not hold the lock.
	ErrNotHeld = errors.New("lock is not held by this session")

	// ErrStale means that a sequencer is not valid: the lock it tells of is no
	// longer held as it says. Nothing was changed.
	ErrStale = errors.New("sequencer is stale")

	// ErrSystemFile means that a client would change what belongs to the cluster.
	// Nothing was changed. The error is a *SystemFileError.
	ErrSystemFile = errors.New("file of the cluster's own")

	// ErrEphemeral means that a file exists that is another session's
	// ephemeral one, or is ephemeral where one that stays was wanted, or the
	// other way round.
	ErrEphemeral = errors.New("file is ephemeral")
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

// SystemFileError means that a client would write, delete or lock a file that the nodes
// keep for themselves, such as who is master. It is an ErrSystemFile. Nodes say with
// their calls that they are nodes, and nobody checks it: this protects from mistakes,
// not from malice.
type SystemFileError struct{ Path string }

func (e *SystemFileError) Error() string {
	return e.Path + " is the cluster's own: clients may read and watch it, only nodes change or lock it"
}

// Is makes the error an ErrSystemFile.
func (e *SystemFileError) Is(target error) bool { return target == ErrSystemFile }

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
	What       string // one of the Limit words
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

// NotLeaderError means that the server asked does not lead the group. It is an
// ErrNotReady.
type NotLeaderError struct {
	// Leader is the id of the server that leads, empty when none is known.
	Leader string
	// Address is where that answers calls, empty when not known.
	Address string
}

func (e *NotLeaderError) Error() string {
	switch {
	case e.Leader == "":
		return "not ready: the lock service has no leader now"
	case e.Address == "":
		return "not ready: the lock service is led by " + e.Leader
	}
	return fmt.Sprintf("not ready: the lock service is led by %s at %s", e.Leader, e.Address)
}

// Is makes the error an ErrNotReady.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotReady }

// LockedError tells who holds a lock. It is an ErrLocked.
type LockedError struct {
	Path string
	Mode Mode // in which it is held
	// Holder is one of the sessions that hold it; zero during a lock-delay.
	Holder SessionID
	// HolderName is what that session calls itself.
	HolderName string
	// Delay is the whole lock-delay that the lock is in, zero when it is held.
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
