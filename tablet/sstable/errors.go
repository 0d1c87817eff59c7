package sstable

import (
	"errors"
	"fmt"
)

// ErrKeyOrder means that a key was not above the previous one. The error returned is a
// *KeyOrderError.
var ErrKeyOrder = errors.New("keys not in ascending order")

// ErrTooLarge means that a key, an entry or a block exceeds its limit. The error returned is a
// *TooLargeError.
var ErrTooLarge = errors.New("too large for an sstable")

// ErrFinished means that a Writer was used after Finish.
var ErrFinished = errors.New("sstable is already finished")

// ErrBadOption means that an option is outside its documented range. The
// text names the option.
var ErrBadOption = errors.New("bad sstable option")

// ErrCorrupt means that bytes of a file differ from what was written. The error returned is a
// *CorruptError.
var ErrCorrupt = errors.New("corrupt sstable")

// ErrVersion means that a file is intact but has a format version that this program cannot read.
// The error returned is a *VersionError.
var ErrVersion = errors.New("unknown sstable version")

// KeyOrderError has the keys that violate the order.
type KeyOrderError struct {
	Entry     uint64 // number of the rejected entry, from 0
	Prev, Key []byte
}

func (e *KeyOrderError) Error() string {
	return fmt.Sprintf("add entry %d: key %.64q is not above the key before it, %.64q", e.Entry, e.Key, e.Prev)
}

// Is makes errors.Is(err, ErrKeyOrder) true.
func (e *KeyOrderError) Is(target error) bool { return target == ErrKeyOrder }

// TooLargeError has the exceeded limit and the size.
type TooLargeError struct {
	What       string // "key", "entry", "block", "property"
	Limit, Got int64  // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s of %d bytes is above the limit of %d bytes", e.What, e.Got, e.Limit)
}

// Is makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// CorruptError locates bytes that differ from what was written.
type CorruptError struct {
	File      string // OpenOptions.Name
	Offset    int64  // of the first byte of the bad block, footer or header
	Length    int64  // of the block, footer or header, in bytes; 0 if unknown
	Reason    string
	Got, Want uint32 // checksums, if they differ
	Err       error  // the Source's error for these bytes; may be nil
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("sstable %s: %s at offset %d", e.File, e.Reason, e.Offset)
	if e.Got != e.Want {
		s += fmt.Sprintf(": checksum %08x, want %08x", e.Got, e.Want)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the Source's error, if any.
func (e *CorruptError) Unwrap() error { return e.Err }

// VersionError has the version of a file.
type VersionError struct {
	File    string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("sstable %s: format version %d, this program reads versions %d to %d", e.File, e.Version, formatVersion, VersionMax)
}

// Is makes errors.Is(err, ErrVersion) true.
func (e *VersionError) Is(target error) bool { return target == ErrVersion }
