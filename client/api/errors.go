package api

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/table"
)

// Sentinels that the tablet server, the node and the client share. Those about
// data alone are table's.
var (
	// ErrNoTable means that there is no table of that name.
	ErrNoTable = errors.New("no such table")
	// ErrTableExists means that a table of that name is there already.
	ErrTableExists = errors.New("table exists")
	// ErrTableReplaced means that the table whose id a request names was dropped, and that another has its name: a
	// *TableReplacedError. Nothing was executed.
	ErrTableReplaced = errors.New("table was dropped and another has its name")
	// ErrNotServing means that the node does not serve the row's tablet now: a
	// *NotServingError if it knows who does. Nothing was executed.
	ErrNotServing = errors.New("tablet not serving")
	// ErrOverloaded means that the node refused the call for want of memory or
	// workers: an *OverloadedError. Nothing was executed.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnavailable means that the node starts or stops. Nothing was executed.
	ErrUnavailable = errors.New("unavailable")
	// ErrCorrupt means that stored bytes are not what was written: a *CorruptError.
	ErrCorrupt = errors.New("corrupt data")
	// ErrDiskFull means that the node has no disk space left for writes. Nothing
	// was executed; reads go on.
	ErrDiskFull = errors.New("disk full")
	// ErrCursorExpired means that a scan's cursor was closed, has not been used for
	// CursorIdle, or is of an earlier run of the node. The client package's Scanner
	// opens another by itself.
	ErrCursorExpired = errors.New("scan cursor expired")
	// ErrConflict means that another change of the schema came between. Nothing
	// was executed.
	ErrConflict = errors.New("changed by another")
	// ErrNotNumber means that an increment met a value that is not 8 bytes long. It
	// matches table.ErrBadValue.
	ErrNotNumber error = &notNumber{}
	// ErrRowTooLarge means that what was asked of one row does not fit into an
	// answer: a *RowTooLargeError. A filter makes it smaller.
	ErrRowTooLarge = errors.New("row too large")
	// ErrNodeNotFound means that the cluster has no node of that id or name.
	ErrNodeNotFound = errors.New("no such node")
	// ErrNodeInUse means that a node cannot be removed now: a *NodeInUseError.
	ErrNodeInUse = errors.New("node in use")
	// ErrStaleEpoch means that a master commands whose time is over: another has been
	// elected since.
	ErrStaleEpoch = errors.New("stale master epoch")
	// ErrNoBlob means that there is no blob of that id.
	ErrNoBlob = errors.New("no such blob")
	// ErrUnsure means that a change may have been made or not, or may still be: the node
	// lost the right to acknowledge it, or its log failed, while it was on its way. A read
	// tells.
	ErrUnsure = errors.New("the change may or may not survive")
	// ErrUploadExpired means that an upload was ended, has not been used for
	// UploadIdle, or is of another node or an earlier run of this one. What was sent is gone.
	ErrUploadExpired = errors.New("upload expired")
	// ErrSystemTable means that a client would change a table that is the cluster's own: METADATA says
	// where all others are. It can be read.
	ErrSystemTable = errors.New("table METADATA is the cluster's own: clients only read it")
	// ErrNoTablet means that the table has no tablet of that id, or no neighbour for it
	// to be merged with.
	ErrNoTablet = errors.New("no such tablet")
	// ErrBadSplit means that a tablet cannot be split where it was asked for: it ends
	// there already, or there is nothing to part.
	ErrBadSplit = errors.New("tablet cannot be split there")
	// ErrTabletBusy means that the tablet is being moved or merged on another's word.
	// Nothing was executed.
	ErrTabletBusy = errors.New("tablet is being moved or merged")
	// ErrNodeNotAlive means that a node can be given no tablet: it is dead, or drains.
	ErrNodeNotAlive = errors.New("node takes no tablets")
	// ErrTokenRefused means that a token does not do what it is used for: a
	// *TokenRefusedError.
	ErrTokenRefused = errors.New("token refused")
)

// TableReplacedError says which table has the name now.
type TableReplacedError struct {
	Table string
	ID    uint64 // of the table that has the name
}

func (e *TableReplacedError) Error() string {
	return fmt.Sprintf("table %q: %s: its id is %d", e.Table, ErrTableReplaced, e.ID)
}

// Is makes the error match ErrTableReplaced.
func (e *TableReplacedError) Is(target error) bool { return target == ErrTableReplaced }

// Why a token is refused. What is unknown may also have a wrong secret: which of the two is
// not told.
const (
	TokenMalformed = "malformed"
	TokenUnknown   = "unknown"
	TokenExpired   = "expired"
	TokenSpent     = "spent"
	TokenOtherNode = "other_node" // it is for another node
	TokenTaken     = "taken"      // the id of the node is another's
	TokenRemoved   = "removed"    // the node was removed from the cluster
)

// TokenRefusedError says why a token is refused.
type TokenRefusedError struct {
	Reason string // TokenUnknown...
	ID     string // of the token, if it could be read
	Text   string // for people
}

func (e *TokenRefusedError) Error() string { return e.Text }

// Is makes the error match ErrTokenRefused.
func (e *TokenRefusedError) Is(target error) bool { return target == ErrTokenRefused }

type notNumber struct{}

func (*notNumber) Error() string        { return "value is not a number of 8 bytes" }
func (*notNumber) Is(target error) bool { return target == table.ErrBadValue }

// OverloadedError means that a node refused a call, before it did anything, for
// want of memory or workers.
type OverloadedError struct {
	// Reason says what there is too much of.
	Reason string
	// RetryAfter is how long to wait before asking again. Zero is unknown.
	RetryAfter time.Duration
}

func (e *OverloadedError) Error() string {
	return fmt.Sprintf("overloaded: %s; retry after %v", e.Reason, e.RetryAfter)
}

// Is makes the error match ErrOverloaded.
func (e *OverloadedError) Is(target error) bool { return target == ErrOverloaded }

// NotServingError means that a node does not serve the tablet that it was asked for, and
// tells where it believes it to be.
type NotServingError struct {
	Addr string // host:port
	Node string // its id
}

func (e *NotServingError) Error() string {
	return fmt.Sprintf("tablet not serving: node %s at %s is said to have it", e.Node, e.Addr)
}

// Is makes the error match ErrNotServing.
func (e *NotServingError) Is(target error) bool { return target == ErrNotServing }

// CorruptError locates stored bytes that are not what was written. They were not
// served.
type CorruptError struct {
	File   string
	Offset int64 // in bytes
	Err    error // the cause on the node; nil at the client
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

// RowTooLargeError means that what was asked of one row is over Limit bytes.
type RowTooLargeError struct{ Limit int64 }

func (e *RowTooLargeError) Error() string {
	return fmt.Sprintf("row too large: its cells are over %d bytes; ask for fewer with a filter", e.Limit)
}

// Is makes the error match ErrRowTooLarge.
func (e *RowTooLargeError) Is(target error) bool { return target == ErrRowTooLarge }

// NodeInUseError means that what was asked of a node cannot be done as long as it is
// needed.
type NodeInUseError struct {
	Node   string // its id
	Reason string // such as "it is alive"
}

func (e *NodeInUseError) Error() string {
	return fmt.Sprintf("node %s is in use: %s", e.Node, e.Reason)
}

// Is makes the error match ErrNodeInUse.
func (e *NodeInUseError) Is(target error) bool { return target == ErrNodeInUse }
