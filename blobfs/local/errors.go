package local

import (
	"errors"
	"fmt"
)

var (
	// ErrNoBlob means that the store does not have the blob, or not all of its extents.
	ErrNoBlob = errors.New("no such blob")
	// ErrNoExtent means that the store does not have the extent.
	ErrNoExtent = errors.New("no such extent")
	// ErrExtentExists means that the store has the extent, or that it is being written.
	ErrExtentExists = errors.New("extent exists")
	// ErrOtherExtent means that the extent's content is not the requested one. It comes with a
	// *CorruptError, though the extent may be undamaged.
	ErrOtherExtent = errors.New("another extent")
	// ErrStaleHolders means that a holder list is older than the stored one.
	ErrStaleHolders = errors.New("list of holders is stale")
	// ErrNoLog means that the store does not have the log.
	ErrNoLog = errors.New("no such log")
	// ErrLogExists means that the store has a log with this ID.
	ErrLogExists = errors.New("log exists")
	// ErrDiskFull means that every usable folder has less free space than its reserve (than half of
	// it for a high-priority extent). Nothing was written; the caller may retry when space is free.
	ErrDiskFull = errors.New("disk full")
	// ErrFolderRetired means that a folder failed a write or an fsync, so that it accepts no writes
	// until the store is reopened, and that no other folder could replace it.
	ErrFolderRetired = errors.New("folder retired")
	// ErrLogFailed means that no folder is left for a log to continue in. It is sticky: the writer
	// cannot be used again. What was acknowledged is safe.
	ErrLogFailed = errors.New("log failed")
	// ErrFenced means that the log was opened for recovery, so its writer may not append again. It
	// is sticky.
	ErrFenced = errors.New("log writer fenced")
	// ErrSealed means that the log or blob is sealed and accepts no more data.
	ErrSealed = errors.New("sealed")
	// ErrClosed means that the store, reader or writer is closed.
	ErrClosed = errors.New("closed")
	// ErrReadOnly means that the store was opened read-only.
	ErrReadOnly = errors.New("store is read-only")
)

// CorruptError locates bytes that differ from what was written, or a missing file.
type CorruptError struct {
	File      string // path, or the name of an extent on another node
	Offset    int64  // in the file, of the first byte that the checksum covers
	Got, Want uint32 // checksums; both 0 if Reason is set
	Reason    string // the defect, unless it is a wrong checksum
}

func (e *CorruptError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("corrupt file %s at offset %d: %s", e.File, e.Offset, e.Reason)
	}
	return fmt.Sprintf("corrupt file %s at offset %d: checksum %08x, want %08x", e.File, e.Offset, e.Got, e.Want)
}

// TooLargeError reports a payload over the size limit of an append.
type TooLargeError struct {
	Limit, Got int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("log payload of %d bytes is over the limit of %d", e.Got, e.Limit)
}

// RefusesExtents reports whether err means that the disks of this node accept no extent now, so that
// other nodes have to.
func RefusesExtents(err error) bool {
	return errors.Is(err, ErrDiskFull) || errors.Is(err, ErrFolderRetired)
}
