package local

import (
	"errors"
	"fmt"
)

var (
	// ErrNoBlob means that the store holds no such blob, or not every extent of it.
	ErrNoBlob = errors.New("no such blob")
	// ErrNoExtent means that the store does not hold the extent.
	ErrNoExtent = errors.New("no such extent")
	// ErrExtentExists means that the store holds the extent, or that somebody is
	// writing it.
	ErrExtentExists = errors.New("extent exists")
	// ErrOtherExtent means that the extent has other bytes than those that are meant. It
	// comes with a *CorruptError, though the extent may be whole.
	ErrOtherExtent = errors.New("another extent")
	// ErrStaleHolders means that a list of holders is older than the one kept.
	ErrStaleHolders = errors.New("list of holders is stale")
	// ErrNoLog means that the store holds no such log.
	ErrNoLog = errors.New("no such log")
	// ErrLogExists means that the ID is that of a log that the store holds.
	ErrLogExists = errors.New("log exists")
	// ErrDiskFull means that every folder still in use has less than its
	// reserve left, or for what is vital half of it. Nothing was written; the call may be made again once there
	// is room.
	ErrDiskFull = errors.New("disk full")
	// ErrFolderRetired means that a folder failed a write or an fsync and is not
	// written to again before the store is reopened, and that no other folder
	// could take its place.
	ErrFolderRetired = errors.New("folder retired")
	// ErrLogFailed means that a log has no folder left to go on in. It is
	// sticky: the writer is of no more use. What was acknowledged is safe.
	ErrLogFailed = errors.New("log failed")
	// ErrFenced means that the log was opened for recovery, so its writer may
	// not append any more. It is sticky.
	ErrFenced = errors.New("log writer fenced")
	// ErrSealed means that the log or blob is sealed and takes nothing more.
	ErrSealed = errors.New("sealed")
	// ErrClosed means that the store, reader or writer is closed.
	ErrClosed = errors.New("closed")
	// ErrReadOnly means that the store was opened to be looked at only.
	ErrReadOnly = errors.New("store is read-only")
)

// CorruptError locates bytes that are not what was written, or a file that is gone.
type CorruptError struct {
	File      string // path, or the name of an extent when it is elsewhere
	Offset    int64  // in the file, of the first byte that the checksum covers
	Got, Want uint32 // checksums; both 0 if something else is wrong
	Reason    string // what is wrong if not a checksum
}

func (e *CorruptError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("corrupt file %s at offset %d: %s", e.File, e.Offset, e.Reason)
	}
	return fmt.Sprintf("corrupt file %s at offset %d: checksum %08x instead of %08x", e.File, e.Offset, e.Got, e.Want)
}

// TooLargeError is a payload over the limit of what one Append takes.
type TooLargeError struct {
	Limit, Got int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("log payload of %d bytes is over the limit of %d", e.Got, e.Limit)
}
