package api

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/table"
)

// Errors that the tablet server, the node and the client share. Package table has those about data.
var (
	// ErrNoTable means that there is no table with that name.
	ErrNoTable = errors.New("no such table")
	// ErrTableExists means that a table with that name already exists.
	ErrTableExists = errors.New("table exists")
	// ErrTableReplaced means that the table with the id in a request was dropped and another table
	// has its name: a *TableReplacedError. Nothing was executed.
	ErrTableReplaced = errors.New("table was dropped and another has its name")
	// ErrNotServing means that the node does not serve the row's tablet: a *NotServingError if it
	// knows which node does. Nothing was executed.
	ErrNotServing = errors.New("tablet not serving")
	// ErrOverloaded means that the node rejected the call for lack of memory or workers: an
	// *OverloadedError. Nothing was executed.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnavailable means that the node is starting or stopping. Nothing was executed.
	ErrUnavailable = errors.New("unavailable")
	// ErrCorrupt means that stored bytes are corrupt: a *CorruptError.
	ErrCorrupt = errors.New("corrupt data")
	// ErrDiskFull means that the node has no disk space left for writes. Nothing was executed;
	// reads continue.
	ErrDiskFull = errors.New("disk full")
	// ErrCursorExpired means that a scan's cursor was closed, was idle for CursorIdle, or belongs
	// to an earlier run of the node. The client package's Scanner then opens another one.
	ErrCursorExpired = errors.New("scan cursor expired")
	// ErrConflict means that the schema was changed concurrently. Nothing was executed.
	ErrConflict = errors.New("changed concurrently")
	// ErrNotNumber means that an increment found a value that is not 8 bytes long. It matches
	// table.ErrBadValue.
	ErrNotNumber error = &notNumber{}
	// ErrRowTooLarge means that the requested cells of one row exceed the maximum size of a result, or
	// the one of the request: a *RowTooLargeError. A filter can reduce them.
	ErrRowTooLarge = errors.New("row too large")
	// ErrNodeNotFound means that the cluster has no node with that id or name.
	ErrNodeNotFound = errors.New("no such node")
	// ErrNodeInUse means that a node cannot be removed now: a *NodeInUseError.
	ErrNodeInUse = errors.New("node in use")
	// ErrStaleEpoch means that the command comes from a former master: another one has been elected
	// since.
	ErrStaleEpoch = errors.New("stale master epoch")
	// ErrNoBackup means that there is no backup with that id.
	ErrNoBackup = errors.New("no such backup")

	// ErrBackupNotMade means that a backup cannot be restored: it is still being made, or has failed.
	ErrBackupNotMade = errors.New("the backup is not complete")

	// ErrNoBlob means that there is no blob with that id.
	ErrNoBlob = errors.New("no such blob")
	// ErrOutcomeUnknown means that the outcome of a change is unknown and may be decided later: before it
	// was acknowledged, the node lost the right to do so, or its log failed. A read shows the
	// outcome.
	ErrOutcomeUnknown = errors.New("the outcome of the change is unknown")
	// ErrUploadExpired means that an upload was ended, was idle for UploadIdle, or belongs to
	// another node or an earlier run of this one. The uploaded bytes were discarded.
	ErrUploadExpired = errors.New("upload expired")
	// ErrBulkExpired means that a part of a bulk import is not open on this node: its tablet was split, merged or moved, the table's schema was
	// changed, it was idle for BulkIdle or open for BulkOpenMax, the node was restarted, or it was aborted. It was not committed, and its rows must be sent again, as
	// another part.
	ErrBulkExpired = errors.New("part of a bulk import is not open")
	// ErrBulkRefused means that a table accepts no bulk imports, because it has a change stream, or because a node of the cluster runs a version that
	// does not read their files. Nothing was executed.
	ErrBulkRefused = errors.New("bulk import refused: write the rows in batches, by mutate_rows or stele import without --bulk")
	// ErrBulkOrder means that the cells of a bulk import are not in ascending order: by row, family, qualifier, and descending timestamp.
	// The part has ended.
	ErrBulkOrder = errors.New("cells of a bulk import are not in ascending order")
	// ErrSystemTable means that a client tried to change METADATA, which clients may only read.
	ErrSystemTable = errors.New("table METADATA is read-only for clients")
	// ErrNoTablet means that the table has no tablet with that id, or that the tablet has no
	// neighbour to be merged with.
	ErrNoTablet = errors.New("no such tablet")
	// ErrBadSplit means that a tablet cannot be split at that row: it already ends there, or a part
	// would be empty.
	ErrBadSplit = errors.New("tablet cannot be split there")
	// ErrTabletBusy means that another request is moving or merging the tablet. Nothing was
	// executed.
	ErrTabletBusy = errors.New("tablet is being moved or merged")
	// ErrNodeNotAlive means that no tablet can be assigned to the node because it is dead or
	// draining.
	ErrNodeNotAlive = errors.New("node accepts no tablets")
	// ErrTokenRefused means that a token was rejected: a *TokenRefusedError.
	ErrTokenRefused = errors.New("token refused")
)

// TableReplacedError holds the id of the table that has the name now.
type TableReplacedError struct {
	Table string
	ID    uint64 // of the table that has the name
}

func (e *TableReplacedError) Error() string {
	return fmt.Sprintf("table %q: %s: its id is %d", e.Table, ErrTableReplaced, e.ID)
}

// Is makes the error match ErrTableReplaced.
func (e *TableReplacedError) Is(target error) bool { return target == ErrTableReplaced }

// Reasons for rejecting a token. TokenUnknown also covers a wrong secret; the two are not
// distinguished.
const (
	TokenMalformed = "malformed"
	TokenUnknown   = "unknown"
	TokenExpired   = "expired"
	TokenSpent     = "spent"
	TokenOtherNode = "other_node" // the token is for another node
	TokenTaken     = "taken"      // another node has the id
	TokenRemoved   = "removed"    // the node was removed from the cluster
)

// TokenRefusedError is the reason for which a token was rejected.
type TokenRefusedError struct {
	Reason string // TokenUnknown...
	ID     string // of the token, if it could be read
	Text   string // message for the user
}

func (e *TokenRefusedError) Error() string { return e.Text }

// Is makes the error match ErrTokenRefused.
func (e *TokenRefusedError) Is(target error) bool { return target == ErrTokenRefused }

type notNumber struct{}

func (*notNumber) Error() string        { return "value is not an 8-byte number" }
func (*notNumber) Is(target error) bool { return target == table.ErrBadValue }

// OverloadedError means that a node rejected a call before execution, for lack of memory or
// workers.
type OverloadedError struct {
	// Reason describes the exhausted resource.
	Reason string
	// RetryAfter is how long to wait before a retry. Zero means that it is not known.
	RetryAfter time.Duration
}

func (e *OverloadedError) Error() string {
	return fmt.Sprintf("overloaded: %s; retry after %v", e.Reason, e.RetryAfter)
}

// Is makes the error match ErrOverloaded.
func (e *OverloadedError) Is(target error) bool { return target == ErrOverloaded }

// NotServingError means that a node does not serve the requested tablet. It holds the tablet's
// server as far as the node knows.
type NotServingError struct {
	Addr string // host:port
	Node string // its id
}

func (e *NotServingError) Error() string {
	return fmt.Sprintf("tablet not serving: it is assigned to node %s at %s", e.Node, e.Addr)
}

// Is makes the error match ErrNotServing.
func (e *NotServingError) Is(target error) bool { return target == ErrNotServing }

// CorruptError locates stored bytes that are corrupt. They were not returned.
type CorruptError struct {
	File   string
	Offset int64 // in bytes
	Err    error // the cause on the node; nil on the client
}

func (e *CorruptError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("corrupt data in %s at offset %d", e.File, e.Offset)
}

// Is makes the error match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func (e *CorruptError) Unwrap() error { return e.Err }

// RowTooLargeError means that the requested cells of one row exceed Limit bytes.
type RowTooLargeError struct{ Limit int64 }

func (e *RowTooLargeError) Error() string {
	return fmt.Sprintf("row too large: its cells exceed %d bytes; read fewer cells with a filter", e.Limit)
}

// Is makes the error match ErrRowTooLarge.
func (e *RowTooLargeError) Is(target error) bool { return target == ErrRowTooLarge }

// NodeInUseError means that the request is not possible while the node is in use.
type NodeInUseError struct {
	Node   string // its id
	Reason string // such as "it is alive"
}

func (e *NodeInUseError) Error() string {
	return fmt.Sprintf("node %s is in use: %s", e.Node, e.Reason)
}

// Is makes the error match ErrNodeInUse.
func (e *NodeInUseError) Is(target error) bool { return target == ErrNodeInUse }

// ErrNoChangeStream means that a table has no change stream.
var ErrNoChangeStream = errors.New("the table has no change stream")

// ErrOutOfRange means that changes after a position of a change stream are not kept any more.
var ErrOutOfRange = errors.New("the position is older than the changes that are kept")

// OutOfRangeError is ErrOutOfRange with the time of the oldest change that is kept.
type OutOfRangeError struct {
	Oldest int64 // µs
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("%v, which begin at %s", ErrOutOfRange, time.UnixMicro(e.Oldest).UTC().Format(time.RFC3339Nano))
}

// Unwrap returns ErrOutOfRange.
func (e *OutOfRangeError) Unwrap() error { return ErrOutOfRange }

// ErrFollower means that a table follows one of another cluster, and accepts no other changes: a *FollowerError.
var ErrFollower = errors.New("the table follows one of another cluster")

// FollowerError is ErrFollower with the name of the replication.
type FollowerError struct {
	Table       string
	Replication string
}

func (e *FollowerError) Error() string {
	return fmt.Sprintf("table %q follows the replication %q, and accepts no other changes: write to its source, or promote it (stele replication promote)", e.Table, e.Replication)
}

// Unwrap returns ErrFollower.
func (e *FollowerError) Unwrap() error { return ErrFollower }

// ErrNotFollower means that a table does not follow the replication of a change.
var ErrNotFollower = errors.New("the table does not follow the replication")

// ErrRestoreTime means that a table cannot be restored to that time: a *RestoreTimeError.
var ErrRestoreTime = errors.New("the table cannot be restored to that time")

// Reasons of a RestoreTimeError.
const (
	RestoreBeforeBackup = "before_backup" // the backup has later changes; Limit is the time of the last one
	RestoreInFuture     = "in_future"     // Limit is the present time
	RestoreNotKept      = "not_kept"      // changes since the backup are not kept any more; Limit is the time of the oldest that is kept
	RestoreOtherCluster = "other_cluster" // the backup was imported: the table's changes are not here
	RestoreOfRestore    = "of_restore"    // the backup was itself made for a time
)

// RestoreTimeError is ErrRestoreTime with the limit that the time exceeds.
type RestoreTimeError struct {
	Reason string // RestoreBeforeBackup and the others
	Limit  int64  // µs; 0: there is none
	Text   string // message with the limit and the remedy
}

func (e *RestoreTimeError) Error() string { return e.Text }

// Unwrap returns ErrRestoreTime.
func (e *RestoreTimeError) Unwrap() error { return ErrRestoreTime }

// NewRestoreTimeError returns the error for a table, with its text. limit is in µs.
func NewRestoreTimeError(reason string, limit int64) *RestoreTimeError {
	at := time.UnixMicro(limit).UTC().Format(time.RFC3339Nano)
	texts := map[string]string{
		RestoreBeforeBackup: "the backup has changes up to " + at + ": restore to that time or a later one, or from an earlier backup",
		RestoreInFuture:     "the time is in the future: the cluster's clock is at " + at,
		RestoreNotKept:      "the table's changes since the backup are not all kept any more, only those since " + at + ": use a backup that was made after that time, or keep changes longer (stele table stream --keep)",
		RestoreOfRestore:    "the backup was itself made for a time: use the backup that it was made from",
		RestoreOtherCluster: "the backup was imported, and the table's changes are not in this cluster: restore it without a time",
	}
	return &RestoreTimeError{Reason: reason, Limit: limit, Text: texts[reason]}
}
