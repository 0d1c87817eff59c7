package logproto

import (
	"errors"
	"fmt"
)

var (
	// ErrNoExtent means that the node holds no replica of that extent.
	ErrNoExtent = errors.New("no such log extent")
	// ErrExtentExists means that the node holds a replica of that extent that was
	// opened by another.
	ErrExtentExists = errors.New("log extent exists")
	// ErrExtentClosed means that a replica takes no more appends, and is not
	// fenced: it was cut, its node was restarted, or its disk failed. The writer
	// goes on in another extent.
	ErrExtentClosed = errors.New("log extent closed")
	// ErrGap means that an append does not begin where the replica's bytes end.
	ErrGap = errors.New("append leaves a gap")
	// ErrUncut means that a replica cannot be read, for it was not cut to the
	// length that is asked for.
	ErrUncut = errors.New("log extent not cut to its recorded length")
	// ErrMismatch means that a replica is cut to another length or start than it is now
	// told. Somebody does not follow the protocol.
	ErrMismatch = errors.New("log extent was cut otherwise")
	// ErrClosed means that the log is sealed or recovered and will not go on.
	ErrClosed = errors.New("log closed")
	// ErrLost means that another's compare-and-set came before.
	ErrLost = errors.New("log is being recovered by another")
	// ErrListFull means that a log has as many extents as a list holds.
	ErrListFull = errors.New("log has too many extents")
)

// FencedError means that the log was taken over.
type FencedError struct {
	Epoch uint64 // by whom; 0 if not known
}

func (e *FencedError) Error() string { return fmt.Sprintf("log fenced at epoch %d", e.Epoch) }

// ShortError means that a replica has fewer bytes than it is to be cut to.
type ShortError struct {
	Length int64 // bytes of frames that it has
}

func (e *ShortError) Error() string {
	return fmt.Sprintf("replica of a log extent has only %d bytes", e.Length)
}
