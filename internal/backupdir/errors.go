package backupdir

import (
	"context"
	"errors"
	"fmt"
)

// ErrNoBackup means that a directory has no backup with that id.
var ErrNoBackup = errors.New("no such backup")

// ErrNoDirectory means that a directory has never been one of backups. It may be the mount point of a file server that is not mounted.
var ErrNoDirectory = errors.New("not a directory of backups")

// ErrLockLost means that a copy or deletion has lost the lock of its store, and stopped: it could not renew it, and another one may have begun.
var ErrLockLost = errors.New("the lock of the backups is lost: another copy or deletion may have begun")

// lockError returns ErrLockLost instead of an error that its loss has caused.
func lockError(held context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(held), ErrLockLost) {
		return ErrLockLost
	}
	return err
}

// BusyError means that another copy or deletion is at work in the directory.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("another copy or deletion is at work in %s", e.Dir)
}

// CorruptError names a file of the directory that is missing or damaged.
type CorruptError struct {
	File   string
	Reason string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s is damaged: %s", e.File, e.Reason) }

// FormatError names a file that a later version has written.
type FormatError struct {
	File   string
	Format int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s has format %d, and this version reads format %d: use the version of stele that wrote it, or a later one", e.File, e.Format, format)
}

// KeyError names a backup that is encrypted by another key than that of the Dir. A key is named by its public id; none is empty.
type KeyError struct {
	File      string
	Want, Got string // of the backup, and of the Dir
}

func (e *KeyError) Error() string {
	switch {
	case e.Want == "":
		return fmt.Sprintf("%s is not encrypted", e.File)
	case e.Got == "":
		return fmt.Sprintf("%s is encrypted by key %s", e.File, e.Want)
	}
	return fmt.Sprintf("%s is encrypted by key %s, not by key %s", e.File, e.Want, e.Got)
}
