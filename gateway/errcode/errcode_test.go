package errcode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/names"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// resent are the codes with which clients send a request again without a RetryInfo.
var resent = map[codes.Code]bool{codes.Unavailable: true, codes.Aborted: true, codes.DeadlineExceeded: true}

// delay returns the delay of the RetryInfo of a status, and whether it has one.
func delay(t *testing.T, err error) (time.Duration, bool) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration(), true
		}
	}
	return 0, false
}

// TestUnknownOutcome: no status of a request that is not repeatable, and may have been executed, makes clients resend it (GE1, GE2).
func TestUnknownOutcome(t *testing.T) {
	causes := []error{
		context.DeadlineExceeded, context.Canceled, rpc.ErrConnLost, api.ErrUnavailable, api.ErrOverloaded,
		&api.OverloadedError{RetryAfter: time.Second}, &api.QuotaError{RetryAfter: time.Second}, api.ErrConflict, errors.New("x"),
	}
	for _, cause := range causes {
		for _, err := range []error{
			&client.AmbiguousError{Method: "mutate", Err: cause},
			fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, cause),
			fmt.Errorf("a row: %w", &client.AmbiguousError{Err: cause}),
		} {
			once := Convert(err, Once)
			if _, has := delay(t, once); status.Code(once) != codes.Unknown || has {
				t.Errorf("%v, not repeatable: %v, with a RetryInfo: %t; want UNKNOWN without", err, once, has)
			}
			if again := Convert(err, Repeatable); !resent[status.Code(again)] {
				t.Errorf("%v, repeatable: %v, want a code that is resent", err, again)
			}
		}
	}
}

func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err   error
		code  codes.Code
		retry time.Duration // of the RetryInfo
	}{
		{nil, codes.OK, 0},
		{&api.OverloadedError{Reason: "memory", RetryAfter: 2 * time.Second}, codes.Unavailable, 2 * time.Second},
		{&api.OverloadedError{Reason: "memory"}, codes.Unavailable, retryDelay},
		{&api.NotServingError{}, codes.Unavailable, retryDelay},
		{fmt.Errorf("%w: it stops", api.ErrUnavailable), codes.Unavailable, retryDelay},
		{&client.UnreachableError{Addr: "n:1", Err: errors.New("refused")}, codes.Unavailable, retryDelay},
		{&api.TableReplacedError{Table: "t", ID: 1}, codes.Unavailable, retryDelay},
		{client.ErrClosed, codes.Unavailable, retryDelay},
		{&api.QuotaError{RetryAfter: time.Second}, codes.ResourceExhausted, time.Second},
		{&api.QuotaError{Bytes: true}, codes.ResourceExhausted, 0},
		{api.ErrDiskFull, codes.ResourceExhausted, 0},
		{api.ErrConflict, codes.Aborted, retryDelay},
		{&api.PermissionError{Text: "no right"}, codes.PermissionDenied, 0},
		{&api.IdentityError{Text: "unknown"}, codes.Unauthenticated, 0},
		{api.ErrSystemTable, codes.PermissionDenied, 0},
		{api.ErrNoTable, codes.NotFound, 0},
		{api.ErrTableExists, codes.AlreadyExists, 0},
		{&table.ElementError{What: "mutation", Index: 3, Err: &table.NoFamilyError{Table: "t", Family: "f"}}, codes.NotFound, 0},
		{&table.NoViewError{Table: "t", View: "v"}, codes.NotFound, 0},
		{&table.ElementError{What: "change", Err: table.ErrViewExists}, codes.AlreadyExists, 0},
		{fmt.Errorf("backup: %w", client.ErrNoBackup), codes.NotFound, 0},
		{&table.ElementError{What: "change", Err: table.ErrViewChanged}, codes.Aborted, 0},
		{&api.CorruptError{}, codes.DataLoss, 0},
		{&api.RowTooLargeError{Limit: 1}, codes.FailedPrecondition, 0},
		{api.ErrNotNumber, codes.FailedPrecondition, 0},
		{&names.Error{}, codes.InvalidArgument, 0},
		{&table.FilterError{Path: "root", Err: &table.LimitError{}}, codes.InvalidArgument, 0},
		{&table.LimitError{}, codes.InvalidArgument, 0},
		{&table.TimestampError{}, codes.InvalidArgument, 0},
		{table.ErrBadRowKey, codes.InvalidArgument, 0},
		{table.ErrNoMutations, codes.InvalidArgument, 0},
		{context.DeadlineExceeded, codes.DeadlineExceeded, 0},
		{context.Canceled, codes.Canceled, 0},
		{errors.New("a bug"), codes.Internal, 0},
		{Unimplemented("backups do not exist here"), codes.Unimplemented, 0},
		{fmt.Errorf("entry 3: %w", Invalid("no mutations")), codes.InvalidArgument, 0},
	} {
		got := Convert(c.err, Once)
		if d, _ := delay(t, got); status.Code(got) != c.code || d != c.retry {
			t.Errorf("%v: %v with a delay of %v, want %v with %v", c.err, got, d, c.code, c.retry)
		}
	}
}

// TestText: the text of a status is that of the error, bounded and in UTF-8 (GE3).
func TestText(t *testing.T) {
	if got := status.Convert(Convert(fmt.Errorf("row \xff: %w", api.ErrNoTable), Once)).Message(); got != "row �: no such table" {
		t.Errorf("%q", got)
	}
	if got := status.Convert(Convert(table.ErrBadRowKey, Once)).Message(); got != "Row keys must be non-empty" {
		t.Errorf("%q", got)
	}
	long := status.Convert(Convert(errors.New(strings.Repeat("é", textBytesMax)), Once)).Message()
	if len(long) > textBytesMax+len("…") || !utf8.ValidString(long) {
		t.Errorf("%d bytes of text, want at most %d, of UTF-8", len(long), textBytesMax+len("…"))
	}
}
