package errcode

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/names"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Repeat states whether a request may be executed twice.
type Repeat bool

const (
	// Once means that a second execution may change the result: increments, conditional mutations,
	// and cells without a timestamp.
	Once Repeat = false
	// Repeatable means that two executions in a row equal one: reads, deletions, and cells with
	// timestamps.
	Repeatable Repeat = true
)

// retryDelay is the delay before a retry if the node did not send one.
const retryDelay = 100 * time.Millisecond

// textBytesMax bounds the text of a status: it travels in an HTTP/2 header.
const textBytesMax = 2 << 10

// Unimplemented returns the status for a part of the API that does not exist here. The text is a
// sentence that names the part.
func Unimplemented(text string) error { return status.Error(codes.Unimplemented, text) }

// Invalid returns the status for a request that is wrong.
func Invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// Convert returns the status of err, which may be nil, as an error. An err that is a status already
// is returned unchanged.
func Convert(err error, repeat Repeat) error { return Status(err, repeat).Err() }

// Status returns the status of err, which may be nil.
func Status(err error, repeat Repeat) *status.Status {
	if err == nil {
		return nil
	}
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) {
		return own.GRPCStatus()
	}
	code, delay := classify(err, repeat)
	s := status.New(code, text(err))
	if delay <= 0 {
		return s
	}
	with, detailsErr := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if detailsErr != nil {
		return s
	}
	return with
}

// classify returns the code for err and the delay of its RetryInfo, or 0 if it has none.
func classify(err error, repeat Repeat) (codes.Code, time.Duration) {
	// An unknown outcome comes first: the error may wrap its cause, such as the end of a context.
	if errors.Is(err, client.ErrAmbiguous) || errors.Is(err, api.ErrOutcomeUnknown) {
		if repeat == Repeatable {
			return codes.Unavailable, retryDelay
		}
		return codes.Unknown, 0
	}
	var overloaded *client.OverloadedError
	if errors.As(err, &overloaded) && overloaded.RetryAfter > 0 {
		return codes.Unavailable, overloaded.RetryAfter
	}
	var quota *client.QuotaError
	if errors.As(err, &quota) && !quota.Bytes {
		return codes.ResourceExhausted, max(quota.RetryAfter, retryDelay)
	}
	for _, k := range kinds {
		if errors.Is(err, k.target) {
			return k.code, k.delay
		}
	}
	return codes.Internal, 0
}

// kinds is in the order in which classify tries them.
var kinds = []struct {
	target error
	code   codes.Code
	delay  time.Duration
}{
	// Nothing was executed.
	{client.ErrOverloaded, codes.Unavailable, retryDelay},
	{client.ErrNotServing, codes.Unavailable, retryDelay},
	{client.ErrUnavailable, codes.Unavailable, retryDelay},
	{client.ErrUnreachable, codes.Unavailable, retryDelay},
	{client.ErrTableReplaced, codes.Unavailable, retryDelay},
	{client.ErrClosed, codes.Unavailable, retryDelay},
	{client.ErrQuota, codes.ResourceExhausted, 0},
	{client.ErrDiskFull, codes.ResourceExhausted, 0},
	{client.ErrConflict, codes.Aborted, retryDelay},
	{client.ErrTabletBusy, codes.Aborted, retryDelay},

	{client.ErrUnauthenticated, codes.Unauthenticated, 0},
	{api.ErrUnauthenticated, codes.Unauthenticated, 0},
	{client.ErrPermission, codes.PermissionDenied, 0},
	{api.ErrPermission, codes.PermissionDenied, 0},
	{client.ErrSystemTable, codes.PermissionDenied, 0},
	{client.ErrNoTable, codes.NotFound, 0},
	{client.ErrTableExists, codes.AlreadyExists, 0},
	{client.ErrNoFamily, codes.NotFound, 0},
	{table.ErrNoView, codes.NotFound, 0},
	{table.ErrFamilyExists, codes.AlreadyExists, 0},
	{table.ErrViewExists, codes.AlreadyExists, 0},
	{table.ErrViewChanged, codes.Aborted, 0},
	{table.ErrReadOnlyChanged, codes.Aborted, 0},
	{client.ErrNoBackup, codes.NotFound, 0},
	{api.ErrNoAppProfile, codes.NotFound, 0},
	{api.ErrAppProfileExists, codes.AlreadyExists, 0},
	{api.ErrAppProfileChanged, codes.Aborted, 0},
	{api.ErrNoSchemaBundle, codes.NotFound, 0},
	{api.ErrSchemaBundleExists, codes.AlreadyExists, 0},
	{api.ErrSchemaBundleChanged, codes.Aborted, 0},
	{client.ErrProtected, codes.FailedPrecondition, 0},
	{client.ErrReadOnly, codes.FailedPrecondition, 0},
	{client.ErrOpenCluster, codes.FailedPrecondition, 0},
	{client.ErrLastAdmin, codes.FailedPrecondition, 0},
	{client.ErrNoUser, codes.InvalidArgument, 0},
	{api.ErrGrantsChanged, codes.Aborted, 0},
	{client.ErrNoGrant, codes.Aborted, retryDelay}, // it was revoked concurrently
	{client.ErrCorrupt, codes.DataLoss, 0},
	{api.ErrNoChangeStream, codes.FailedPrecondition, 0},
	{api.ErrOutOfRange, codes.OutOfRange, 0},
	{client.ErrRowTooLarge, codes.FailedPrecondition, 0},
	{table.ErrBadValue, codes.FailedPrecondition, 0},

	{names.ErrBadName, codes.InvalidArgument, 0},
	{table.ErrBadFilter, codes.InvalidArgument, 0},
	{table.ErrLimit, codes.InvalidArgument, 0},
	{table.ErrBadName, codes.InvalidArgument, 0},
	{table.ErrBadTimestamp, codes.InvalidArgument, 0},
	{table.ErrBadRowKey, codes.InvalidArgument, 0},
	{table.ErrBadOp, codes.InvalidArgument, 0},
	{table.ErrAggregate, codes.InvalidArgument, 0},
	{table.ErrBadOperand, codes.InvalidArgument, 0},
	{table.ErrBadToken, codes.InvalidArgument, 0},
	{table.ErrNoMutations, codes.InvalidArgument, 0},
	{table.ErrNoRules, codes.InvalidArgument, 0},
	{table.ErrBadSchema, codes.InvalidArgument, 0},
	{table.ErrBadGCPolicy, codes.InvalidArgument, 0},
	{table.ErrBadSpec, codes.InvalidArgument, 0},
	{table.ErrBadEncoding, codes.InvalidArgument, 0},
	{table.ErrNoGroup, codes.InvalidArgument, 0},
	{client.ErrBadSplit, codes.InvalidArgument, 0},
	{rpc.CodeTooLarge, codes.InvalidArgument, 0},
	{rpc.CodeBadRequest, codes.InvalidArgument, 0},
	{rpc.CodeUnavailable, codes.Unavailable, retryDelay},

	{context.DeadlineExceeded, codes.DeadlineExceeded, 0},
	{context.Canceled, codes.Canceled, 0},
}

// text returns the text of err for a status.
func text(err error) string {
	s := strings.ToValidUTF8(err.Error(), "�")
	if len(s) > textBytesMax {
		s = strings.ToValidUTF8(s[:textBytesMax], "") + "…"
	}
	if errors.Is(err, table.ErrBadRowKey) {
		// Tests of clients expect Google's words.
		return "Row keys must be non-empty"
	}
	return s
}
