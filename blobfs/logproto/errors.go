package logproto

import (
	"errors"
	"fmt"
)

var (
	// ErrNoExtent means that the node has no replica of the extent.
	ErrNoExtent = errors.New("no such log extent")
	// ErrExtentExists means that the node has a replica of the extent that another writer opened.
	ErrExtentExists = errors.New("log extent exists")
	// ErrExtentClosed means that a replica accepts no more appends although it is not fenced: it
	// was cut, its node was restarted, or its disk failed. The writer continues in another extent.
	ErrExtentClosed = errors.New("log extent closed")
	// ErrGap means that an append does not start where the replica's bytes end.
	ErrGap = errors.New("append leaves a gap")
	// ErrUncut means that a replica cannot be read because it was not cut to the requested length.
	ErrUncut = errors.New("log extent not cut to its recorded length")
	// ErrMismatch means that a replica was cut to another start or length than the requested one. A
	// node violates the protocol.
	ErrMismatch = errors.New("log extent was cut to another start or length")
	// ErrClosed means that the log is sealed or recovered and accepts no more appends.
	ErrClosed = errors.New("log closed")
	// ErrLost means that another recovery or writer changed the list first.
	ErrLost = errors.New("log was taken over by another recovery")
	// ErrListFull means that a log has as many extents as a list can hold. Appends are rejected until
	// some are released.
	ErrListFull = errors.New("log has too many extents")
)

// FencedError means that the log was taken over.
type FencedError struct {
	Epoch uint64 // of the takeover; 0 if unknown
}

func (e *FencedError) Error() string { return fmt.Sprintf("log fenced at epoch %d", e.Epoch) }

// ShortError means that a replica has fewer bytes than the length that it is to be cut to.
type ShortError struct {
	Length int64 // bytes of frames in the replica
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("log replica has only %d bytes", e.Length)
}
