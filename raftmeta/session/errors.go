package session

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/raftmeta/api"
)

var (
	// ErrUnreachable means that no server of the group could be reached. It is an api.ErrNotReady:
	// nothing was changed.
	ErrUnreachable error = &unreachable{}

	// ErrExpired means that the session ended without being closed: its lease and its grace period
	// ran out, or the leader does not know it. All its locks and ephemeral files are lost. It is an
	// api.ErrNoSession.
	ErrExpired error = &expired{}

	// ErrRefused is returned by a Dialer if the server rejects this client, or this client rejects
	// the server. Retrying is useless.
	ErrRefused = errors.New("connection rejected")

	// ErrWatcherClosed means that the Watcher is closed.
	ErrWatcherClosed = errors.New("watcher closed")
)

type unreachable struct{}

func (*unreachable) Error() string        { return "no server of the lock service can be reached" }
func (*unreachable) Is(target error) bool { return target == api.ErrNotReady }

type expired struct{}

func (*expired) Error() string        { return "session expired" }
func (*expired) Is(target error) bool { return target == api.ErrNoSession }

// UnreachableError has the address of a server that could not be reached, and the cause. It is an
// ErrUnreachable.
type UnreachableError struct {
	Addr string
	Err  error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("cannot reach %s: %v", e.Addr, e.Err) }

// Is makes the error an ErrUnreachable, and also an api.ErrNotReady, which is retried, unless the
// cause is ErrRefused.
func (e *UnreachableError) Is(target error) bool {
	return target == ErrUnreachable || target == api.ErrNotReady && !errors.Is(e.Err, ErrRefused)
}

func (e *UnreachableError) Unwrap() error { return e.Err }
