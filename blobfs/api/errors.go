package api

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/local"
)

// Errors of package local that keep their identity on the wire.
var (
	ErrNoExtent      = local.ErrNoExtent
	ErrExtentExists  = local.ErrExtentExists
	ErrStaleHolders  = local.ErrStaleHolders
	ErrDiskFull      = local.ErrDiskFull
	ErrFolderRetired = local.ErrFolderRetired
)

var (
	// ErrNoStream means that the node does not have the stream: it never did, it dropped the stream
	// as idle, or the extent was begun again.
	ErrNoStream = errors.New("no such stream")
	// ErrBadStream means that bytes of a stream do not follow those before, or that the received
	// bytes differ from the sent ones.
	ErrBadStream = errors.New("stream is broken")
	// ErrBusy means that the node accepts no more streams, or that the unacknowledged bytes of a
	// stream exceed its window.
	ErrBusy = errors.New("node is busy")
	// ErrUnreachable means that a node did not answer or cannot be connected to. The request may
	// have been executed.
	ErrUnreachable = errors.New("node is unreachable")
	// ErrBadRequest means that a parameter is out of bounds.
	ErrBadRequest = errors.New("bad request")
)

// CorruptError locates bytes whose checksum is wrong.
type CorruptError = local.CorruptError

// ReplicaError names the node of a chain that failed.
type ReplicaError struct {
	Node string
	Err  error
}

func (e *ReplicaError) Error() string { return fmt.Sprintf("replica on %s: %v", e.Node, e.Err) }

// Unwrap returns the error of that node.
func (e *ReplicaError) Unwrap() error { return e.Err }
