package reply

import (
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/client/api"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/commitlog"
)

// leaseEnded is the error of a tablet server that has lost its lock.
var leaseEnded = &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true, Message: "the server has lost its lock"}

// TestUnknownOutcomes: errors that leave the outcome of a change unknown are reported as such, whatever they wrap: no cause that
// means "not executed" shows through.
func TestUnknownOutcomes(t *testing.T) {
	for _, cause := range []error{
		metaapi.ErrNotReady, metaapi.FromRPC(metaapi.ToRPC(metaapi.ErrNotReady)), metaapi.ErrClosed, metaapi.ErrDiskFull, blobfs.ErrDiskFull,
		blobfs.ErrFenced, &metaapi.GenerationError{Got: 7}, leaseEnded, api.ErrNotServing,
	} {
		for _, err := range []error{
			&commitlog.FailedError{Cause: cause}, &tablet.UnknownOutcomeError{Cause: cause}, fmt.Errorf("%w; tried again: %w", metaapi.ErrOutcomeUnknown, cause),
		} {
			var answer *rpc.Error
			if !errors.As(ToAPI(fmt.Errorf("write: %w", err)), &answer) || answer.Code != api.CodeOutcomeUnknown || answer.Retryable || len(answer.Details) > 0 {
				t.Errorf("%v (%T of %v) is told as %+v", err, err, cause, answer)
			}
		}
	}
}

// TestErrorsOfOtherNodes: what another node answered reaches clients as an error of the data
// API, as if it had happened here.
func TestErrorsOfOtherNodes(t *testing.T) {
	for _, test := range []struct {
		here, there error // there: as it came from another node
		want        error
	}{
		{metaapi.ErrDiskFull, metaapi.FromRPC(metaapi.ToRPC(metaapi.ErrDiskFull)), api.ErrDiskFull},
		{metaapi.ErrNotReady, metaapi.FromRPC(metaapi.ToRPC(metaapi.ErrNotReady)), api.ErrUnavailable},
		{session.ErrExpired, metaapi.FromRPC(metaapi.ToRPC(session.ErrExpired)), api.ErrUnavailable},
		{&metaapi.GenerationError{Got: 7}, metaapi.FromRPC(metaapi.ToRPC(&metaapi.GenerationError{Got: 7})), api.ErrConflict},
		{blobfs.ErrDiskFull, blobapi.FromRPC(blobapi.ToRPC(blobfs.ErrDiskFull)), api.ErrDiskFull},
		{&blobfs.CorruptError{File: "x", Offset: 5}, blobapi.FromRPC(blobapi.ToRPC(&blobfs.CorruptError{File: "x", Offset: 5})), api.ErrCorrupt},
	} {
		for _, err := range []error{test.here, test.there} {
			var answer *rpc.Error
			if !errors.As(ToAPI(fmt.Errorf("read a file: %w", err)), &answer) {
				t.Fatalf("%v is not told as an answer", err)
			}
			if got := api.FromRPC(answer); !errors.Is(got, test.want) {
				t.Errorf("%v (%T) is told as %v, code %d, want %v", err, err, got, answer.Code, test.want)
			}
		}
	}
}
