package session

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/raftmeta/api"
)

var (
	// ErrUnreachable means that no server of the group could be asked. It is an
	// api.ErrNotReady: nothing was changed.
	ErrUnreachable error = &unreachable{}

	// ErrExpired means that the session has ended without being closed: its lease
	// ran out and the grace period with it, or the leader says that it is gone. All
	// its locks and ephemeral files are lost. It is an api.ErrNoSession.
	ErrExpired error = &expired{}

	// ErrRefused is for a Dialer to say that a server does not take who connects, or is none
	// to be taken: to try again is no use.
	ErrRefused = errors.New("not taken")

	// ErrWatcherClosed means that the Watcher was closed.
	ErrWatcherClosed = errors.New("watcher closed")
)

type unreachable struct{}

func (*unreachable) Error() string        { return "no server of the lock service can be reached" }
func (*unreachable) Is(target error) bool { return target == api.ErrNotReady }

type expired struct{}

func (*expired) Error() string        { return "session expired" }
func (*expired) Is(target error) bool { return target == api.ErrNoSession }

// UnreachableError tells which server could not be connected to, and why. It is an
// ErrUnreachable.
type UnreachableError struct {
	Addr string
	Err  error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("cannot reach %s: %v", e.Addr, e.Err) }

// Is makes the error match ErrUnreachable, and api.ErrNotReady, which is tried again, unless it is ErrRefused.
func (e *UnreachableError) Is(target error) bool {
	return target == ErrUnreachable || target == api.ErrNotReady && !errors.Is(e.Err, ErrRefused)
}

func (e *UnreachableError) Unwrap() error { return e.Err }
