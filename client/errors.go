package client

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Errors that a node answers with. errors.Is tells them; those about data are in
// package table. The first group was refused before anything was executed.
var (
	ErrNotServing  = api.ErrNotServing  // the node does not serve the row's tablet
	ErrOverloaded  = api.ErrOverloaded  // an *OverloadedError
	ErrUnavailable = api.ErrUnavailable // the node starts or stops
	ErrDiskFull    = api.ErrDiskFull
	ErrConflict    = api.ErrConflict // the schema was changed meanwhile
	ErrNoTable     = api.ErrNoTable
	ErrTableExists = api.ErrTableExists
	// ErrTableReplaced is a *TableReplacedError: the table was dropped and another has its name. The client sends the call
	// to that one by itself: it returns this only if it may not retry.
	ErrTableReplaced = api.ErrTableReplaced

	ErrNodeNotFound = api.ErrNodeNotFound
	ErrNodeInUse    = api.ErrNodeInUse  // a *NodeInUseError
	ErrStaleEpoch   = api.ErrStaleEpoch // a master commands whose time is over

	ErrNoTablet     = api.ErrNoTablet     // no tablet of that id, or no neighbour to merge with
	ErrBadSplit     = api.ErrBadSplit     // a tablet ends there, or has nothing to part
	ErrTabletBusy   = api.ErrTabletBusy   // it is being moved or merged on another's word
	ErrNodeNotAlive = api.ErrNodeNotAlive // a node can be given no tablet

	ErrTokenRefused = api.ErrTokenRefused // a *TokenRefusedError
	ErrNoUser       = api.ErrNoUser
	ErrNoGrant      = api.ErrNoGrant
	ErrLastAdmin    = api.ErrLastAdmin   // nobody else may administer the cluster
	ErrNoIssuer     = api.ErrNoIssuer    // the master's node has not the authority's key
	ErrRollover     = api.ErrRollover    // the replacement of the authority is at another stage
	ErrOpenCluster  = api.ErrOpenCluster // the cluster has no users, grants and tokens

	ErrQuota      = api.ErrQuota      // a *QuotaError: a quota is used up
	ErrQuotaRate  = api.ErrQuotaRate  // and it is one of a rate
	ErrQuotaBytes = api.ErrQuotaBytes // or of bytes: deletions are taken
	ErrNoQuota    = api.ErrNoQuota

	ErrNoBlob        = api.ErrNoBlob
	ErrUploadExpired = api.ErrUploadExpired // what was sent of a blob is gone
	ErrSystemTable   = api.ErrSystemTable   // METADATA is only read, and split and merged by itself

	ErrNoFamily     = table.ErrNoFamily     // a *table.NoFamilyError
	ErrLimit        = table.ErrLimit        // a *table.LimitError
	ErrNotNumber    = api.ErrNotNumber      // an increment of what is not 8 bytes
	ErrCorrupt      = api.ErrCorrupt        // a *CorruptError: stored data is damaged
	ErrRowTooLarge  = api.ErrRowTooLarge    // a *RowTooLargeError
	ErrBadFilter    = table.ErrBadFilter    // a *table.FilterError
	ErrBadName      = table.ErrBadName      // a *table.NameError
	ErrBadTimestamp = table.ErrBadTimestamp // a *table.TimestampError
	ErrBadSchema    = table.ErrBadSchema    // a schema that contradicts itself
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

// Why a token is refused: TokenRefusedError.Reason.
const (
	TokenMalformed = api.TokenMalformed
	TokenUnknown   = api.TokenUnknown
	TokenExpired   = api.TokenExpired
	TokenSpent     = api.TokenSpent
	TokenOtherNode = api.TokenOtherNode
	TokenTaken     = api.TokenTaken
	TokenRemoved   = api.TokenRemoved
)

// Errors about who the client is.
var (
	// ErrUnauthenticated means that the node does not know who asks: an *IdentityError.
	ErrUnauthenticated error = rpc.CodeUnauthenticated
	// ErrPermission means that who asks may not do that: a *PermissionError.
	ErrPermission error = rpc.CodePermissionDenied
	// ErrNoCredential means that the node takes nobody who has not proved who he is, and the
	// client has neither Config.Credential nor Config.Token.
	ErrNoCredential = rpc.ErrWantsTLS
	// ErrNoTLS means that the node speaks no TLS, as its cluster has no certificates: connect without Config.Credential
	// and Config.Token if that is meant.
	ErrNoTLS = errors.New("node has no certificate and speaks no TLS")
)

var (
	// ErrUnreachable means that no connection to a node could be made: an
	// *UnreachableError. Nothing was executed.
	ErrUnreachable = errors.New("unreachable")
	// ErrAmbiguous means that a change may have been made or not: an
	// *AmbiguousError.
	ErrAmbiguous = errors.New("outcome unknown")
	// ErrClosed means that the Client is closed.
	ErrClosed = errors.New("client closed")
)

// UnreachableError tells which node could not be connected to, and why.
type UnreachableError struct {
	Addr string // host:port
	Err  error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("cannot reach %s: %v", e.Addr, e.Err) }

// Is makes the error match ErrUnreachable.
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

func (e *UnreachableError) Unwrap() error { return e.Err }

// AmbiguousError means that a change was sent and no answer came: it may have been
// made, may still be made, or not. Err tells why, for example context.Canceled or
// a lost connection. A read tells what came of it. See Replay for changes that may
// safely be sent again.
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

// BatchError tells which mutations of an ApplyAll were not applied, or not surely.
type BatchError struct {
	// Errs has an error or nil for each mutation, in the order given.
	Errs []error
	// Failed is the number of errors in Errs.
	Failed int
}

func (e *BatchError) Error() string {
	for i, err := range e.Errs {
		if err != nil {
			return fmt.Sprintf("%d of %d mutations failed, number %d first: %v", e.Failed, len(e.Errs), i, err)
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
