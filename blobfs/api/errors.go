package api

import (
	"errors"
	"fmt"
)

var (
	// ErrNoExtent means that the node does not have the extent.
	ErrNoExtent = errors.New("no such extent")
	// ErrNoStream means that the node knows no such stream: it never did, or it
	// gave the stream up for want of news, or was started anew.
	ErrNoStream = errors.New("no such stream")
	// ErrExtentExists means that the node has the extent already.
	ErrExtentExists = errors.New("extent exists")
	// ErrStaleEpoch means that a list of holders is older than the one that the node has.
	ErrStaleEpoch = errors.New("list of holders is stale")
	// ErrBusy means that the node takes no more streams, or that a stream has more
	// under way than its window.
	ErrBusy = errors.New("node is busy")
	// ErrUnreachable means that a node did not answer, or that there is no way to it.
	ErrUnreachable = errors.New("node is unreachable")
)

// ReplicaError names the node that failed, of those that a stream passes through.
type ReplicaError struct {
	Node string
	Err  error
}

func (e *ReplicaError) Error() string { return fmt.Sprintf("replica on %s: %v", e.Node, e.Err) }

// Unwrap returns what happened there.
func (e *ReplicaError) Unwrap() error { return e.Err }
