package client

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Errors that a node returns, for errors.Is. Package table has those about data. For the first
// group, nothing was executed.
var (
	ErrNotServing  = api.ErrNotServing  // the node does not serve the row's tablet
	ErrOverloaded  = api.ErrOverloaded  // an *OverloadedError
	ErrUnavailable = api.ErrUnavailable // the node is starting or stopping
	ErrDiskFull    = api.ErrDiskFull
	ErrConflict    = api.ErrConflict // the schema was changed concurrently
	ErrNoTable     = api.ErrNoTable
	ErrTableExists = api.ErrTableExists
	// ErrTableReplaced is a *TableReplacedError: the table was dropped and another has its name.
	// The client sends the call to that table by itself and returns this error only if it may not
	// retry.
	ErrTableReplaced = api.ErrTableReplaced

	ErrNodeNotFound = api.ErrNodeNotFound
	ErrNodeInUse    = api.ErrNodeInUse  // a *NodeInUseError
	ErrStaleEpoch   = api.ErrStaleEpoch // a command of a former master

	ErrNoTablet     = api.ErrNoTablet     // no tablet with that id, or no neighbour to merge with
	ErrBadSplit     = api.ErrBadSplit     // a tablet ends there, or a part would be empty
	ErrTabletBusy   = api.ErrTabletBusy   // another request is moving or merging it
	ErrNodeNotAlive = api.ErrNodeNotAlive // no tablet can be assigned to the node

	ErrTokenRefused = api.ErrTokenRefused // a *TokenRefusedError
	ErrNoUser       = api.ErrNoUser
	ErrNoGrant      = api.ErrNoGrant
	ErrLastAdmin    = api.ErrLastAdmin   // no other administrator would be left
	ErrNoIssuer     = api.ErrNoIssuer    // the master's node does not have the authority's key
	ErrRollover     = api.ErrRollover    // the replacement of the authority is at another stage
	ErrOpenCluster  = api.ErrOpenCluster // the cluster has no users, grants and tokens

	ErrQuota      = api.ErrQuota      // a *QuotaError: a quota is exceeded
	ErrQuotaRate  = api.ErrQuotaRate  // a rate is exceeded
	ErrQuotaBytes = api.ErrQuotaBytes // bytes are exceeded; deletions are accepted
	ErrNoQuota    = api.ErrNoQuota

	ErrNoBlob        = api.ErrNoBlob
	ErrNoBackup      = api.ErrNoBackup
	ErrBackupNotMade = api.ErrBackupNotMade
	ErrUploadExpired = api.ErrUploadExpired // the uploaded bytes were discarded
	ErrBulkExpired   = api.ErrBulkExpired   // a part of a bulk import was not committed, and must be sent again
	ErrBulkRefused   = api.ErrBulkRefused   // the table has a change stream, or a node an earlier version
	ErrBulkOrder     = api.ErrBulkOrder     // the rows are not in ascending order
	ErrSystemTable   = api.ErrSystemTable   // METADATA is read-only for clients

	ErrNoFamily     = table.ErrNoFamily     // a *table.NoFamilyError
	ErrAggregate    = table.ErrAggregate    // an operation that does not fit the aggregate of its family
	ErrProtected    = table.ErrProtected    // the table, and its families, cannot be dropped
	ErrReadOnly     = table.ErrReadOnly     // the table accepts no changes of rows
	ErrLimit        = table.ErrLimit        // a *table.LimitError
	ErrNotNumber    = api.ErrNotNumber      // an increment of a value that is not 8 bytes long
	ErrCorrupt      = api.ErrCorrupt        // a *CorruptError: stored data is corrupt
	ErrRowTooLarge  = api.ErrRowTooLarge    // a *RowTooLargeError
	ErrBadFilter    = table.ErrBadFilter    // a *table.FilterError
	ErrBadName      = table.ErrBadName      // a *table.NameError
	ErrBadTimestamp = table.ErrBadTimestamp // a *table.TimestampError
	ErrBadSchema    = table.ErrBadSchema    // an inconsistent schema
)

// Types of the errors above.
type (
	OverloadedError  = api.OverloadedError
	CorruptError     = api.CorruptError
	RowTooLargeError = api.RowTooLargeError
	NodeInUseError   = api.NodeInUseError

	TableReplacedError = api.TableReplacedError

	TokenRefusedError = api.TokenRefusedError
	IdentityError     = api.IdentityError
	PermissionError   = api.PermissionError
	QuotaError        = api.QuotaError
)

// Reasons for rejecting a token: TokenRefusedError.Reason.
const (
	TokenMalformed = api.TokenMalformed
	TokenUnknown   = api.TokenUnknown
	TokenExpired   = api.TokenExpired
	TokenSpent     = api.TokenSpent
	TokenOtherNode = api.TokenOtherNode
	TokenTaken     = api.TokenTaken
	TokenRemoved   = api.TokenRemoved
)

// Errors about the client's identity.
var (
	// ErrUnauthenticated means that the node could not authenticate the client: an *IdentityError.
	ErrUnauthenticated error = rpc.CodeUnauthenticated
	// ErrPermission means that the client lacks a right: a *PermissionError.
	ErrPermission error = rpc.CodePermissionDenied
	// ErrNoCredential means that the node requires authentication, and that the client has neither
	// Config.Credential nor Config.Token.
	ErrNoCredential = rpc.ErrWantsTLS
	// ErrNoTLS means that the node does not support TLS because its cluster has no certificates. To
	// connect anyway, omit Config.Credential and Config.Token.
	ErrNoTLS = errors.New("node has no certificate and does not support TLS")
)

var (
	// ErrUnreachable means that no connection to a node could be made: an *UnreachableError.
	// Nothing was executed.
	ErrUnreachable = errors.New("unreachable")
	// ErrAmbiguous means that the outcome of a change is unknown: an *AmbiguousError.
	ErrAmbiguous = errors.New("outcome unknown")
	// ErrBadAnswer means that an answer contradicts its request: an *AnswerError.
	ErrBadAnswer = errors.New("bad answer")
	// ErrClosed means that the Client is closed.
	ErrClosed = errors.New("client closed")
)

// UnreachableError means that no connection to the node at Addr could be made.
type UnreachableError struct {
	Addr string // host:port
	Err  error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("cannot reach %s: %v", e.Addr, e.Err) }

// Is makes the error match ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

func (e *UnreachableError) Unwrap() error { return e.Err }

// AmbiguousError means that a change was sent and no response arrived: it may have been made, may
// still be made, or not. Err is the cause, for example context.Canceled or a lost connection. A
// read shows the outcome. See Replay for changes that may safely be sent again.
type AmbiguousError struct {
	Method string // such as "mutate"
	Err    error
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%s: outcome unknown: %v", e.Method, e.Err)
}

// Is makes the error match ErrAmbiguous.
func (e *AmbiguousError) Is(target error) bool { return target == ErrAmbiguous }

func (e *AmbiguousError) Unwrap() error { return e.Err }

// AnswerError means that a node's answer to a method contradicts the request: the node is faulty, or no node of Stele.
type AnswerError struct {
	Method string
	Reason string
}

func (e *AnswerError) Error() string { return fmt.Sprintf("bad answer to %s: %s", e.Method, e.Reason) }

// Is makes the error match ErrBadAnswer.
func (e *AnswerError) Is(target error) bool { return target == ErrBadAnswer }

// BatchError reports which mutations of an ApplyAll were not applied, or may not have been.
type BatchError struct {
	// Errs has an error or nil for each mutation, in the order of the call.
	Errs []error
	// Failed is the number of errors in Errs.
	Failed int
}

func (e *BatchError) Error() string {
	for i, err := range e.Errs {
		if err != nil {
			return fmt.Sprintf("%d of %d mutations failed, the first at index %d: %v", e.Failed, len(e.Errs), i, err)
		}
	}
	return "no mutation failed"
}

// Unwrap returns the errors, so that errors.Is finds any of them.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, 0, e.Failed)
	for _, err := range e.Errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
