package storage

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrCorrupt means that stored bytes differ from what was written. The error is a
	// *CorruptError.
	ErrCorrupt = errors.New("corrupt data")

	// ErrStalled means that the disk did not complete a write within Config.StallTimeout. The error
	// is a *DiskError.
	ErrStalled = errors.New("disk stalled")
)

// CorruptError locates stored bytes that differ from what was written. It is an ErrCorrupt.
type CorruptError struct {
	File   string
	Offset int64 // in bytes, of the smallest unit known to be corrupt
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt data in %s at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Is makes the error an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// GapError means that log entries were rejected because they do not follow the end of the log.
type GapError struct {
	Index, Want uint64 // of the rejected entry, and of the next entry of the log
}

func (e *GapError) Error() string {
	return fmt.Sprintf("store log entry %d: the next entry is %d", e.Index, e.Want)
}

// DiskError means that the disk with the data directory failed or stalled. The group acknowledges
// nothing after it. A failed fsync must not be retried, because the kernel may have dropped the
// pages that it could not write.
type DiskError struct {
	Op    string        // the operation that failed, such as "store log entries"
	After time.Duration // how long the operation took
	Err   error         // ErrStalled, or the error of the operating system
}

func (e *DiskError) Error() string {
	return fmt.Sprintf("%s: %v (after %v)", e.Op, e.Err, e.After.Round(time.Millisecond))
}

func (e *DiskError) Unwrap() error { return e.Err }
