package api

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/local"
)

// Those of package local cross the wire as what they are.
var (
	ErrNoExtent      = local.ErrNoExtent
	ErrExtentExists  = local.ErrExtentExists
	ErrStaleHolders  = local.ErrStaleHolders
	ErrDiskFull      = local.ErrDiskFull
	ErrFolderRetired = local.ErrFolderRetired
)

var (
	// ErrNoStream means that the node knows no such stream: it never did, or it
	// gave the stream up for want of news, or the extent was begun anew.
	ErrNoStream = errors.New("no such stream")
	// ErrBadStream means that bytes of a stream do not join on to those before, or that
	// what arrived is not what was sent.
	ErrBadStream = errors.New("stream is broken")
	// ErrBusy means that the node takes no more streams, or that a stream has more
	// under way than its window.
	ErrBusy = errors.New("node is busy")
	// ErrUnreachable means that a node did not answer, or cannot now, or that there is no
	// way to it. What it was asked may have been done.
	ErrUnreachable = errors.New("node is unreachable")
	// ErrBadRequest means that a request is out of its bounds.
	ErrBadRequest = errors.New("bad request")
)

// CorruptError locates bytes that are not what was written.
type CorruptError = local.CorruptError

// ReplicaError names the node that failed, of those that a stream passes through.
type ReplicaError struct {
	Node string
	Err  error
}

func (e *ReplicaError) Error() string { return fmt.Sprintf("replica on %s: %v", e.Node, e.Err) }

// Unwrap returns what happened there.
func (e *ReplicaError) Unwrap() error { return e.Err }
