package raftmeta

import (
	"errors"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/fsm"
)

// Errors that callers in other processes see are defined in raftmeta/api.
var (
	ErrNotFound       = api.ErrNotFound
	ErrBadPath        = api.ErrBadPath
	ErrIsDirectory    = api.ErrIsDirectory
	ErrNotDirectory   = api.ErrNotDirectory
	ErrNotEmpty       = api.ErrNotEmpty
	ErrGeneration     = api.ErrGeneration
	ErrTooLarge       = api.ErrTooLarge
	ErrNotReady       = api.ErrNotReady
	ErrOutcomeUnknown = api.ErrOutcomeUnknown
	ErrDiskFull       = api.ErrDiskFull
	ErrClosed         = api.ErrClosed
)

// Error types that are defined in raftmeta/api.
type (
	// PathError describes why a string is not a valid path.
	PathError = api.PathError
	// GenerationError has the two content generations of a failed compare-and-set.
	GenerationError = api.GenerationError
	// TooLargeError names the limit that a change would exceed.
	TooLargeError = api.TooLargeError
	// NotLeaderError names the leader.
	NotLeaderError = api.NotLeaderError
)

// Types that are defined in raftmeta/fsm.
type (
	// VersionError means that stored bytes were written by a newer program.
	VersionError = fsm.VersionError
	// Quota bounds what a user may hold in the lock service.
	Quota = fsm.Quota
)

// Errors of the data directory, which are defined in raftmeta/storage.
var (
	// ErrCorrupt means that stored bytes differ from what was written. The error is a
	// *CorruptError.
	ErrCorrupt = storage.ErrCorrupt
	// ErrStalled means that the disk did not complete a write within Config.StallTimeout. The error
	// is a *DiskError.
	ErrStalled = storage.ErrStalled
)

// Error types that are defined in raftmeta/storage.
type (
	// CorruptError locates stored bytes that differ from what was written. It is an ErrCorrupt.
	CorruptError = storage.CorruptError
	// DiskError means that the disk with the data directory failed or stalled.
	DiskError = storage.DiskError
)

var (
	// ErrWrongServer means that the data directory belongs to a server with a different id.
	ErrWrongServer = errors.New("data directory belongs to another server")

	// ErrNoStreams means that the group has several voters and Config.Streams is nil.
	ErrNoStreams = errors.New("group with several voters requires streams")

	// ErrLogReplaced means that the leader's snapshot replaced a log that extended beyond it with
	// entries that were never committed. Everything is on disk. The server must be restarted to
	// continue from the snapshot.
	ErrLogReplaced = errors.New("log replaced by a snapshot: restart the server")
)
