// Package reply has what the services of a node share to answer calls: beginning a call, and giving errors of all packages the form
// that clients get.
package reply

import (
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/sstable"
)

// Fail answers a call with err in its API form.
func Fail(c *rpc.Call, err error) { c.Fail(ToAPI(err)) }

// ToAPI converts errors of the parts that the data API does not know to their API form.
func ToAPI(err error) error {
	var failed *commitlog.FailedError
	var unsure *tablet.UnknownOutcomeError
	var changed *metaapi.GenerationError
	var large *metaapi.TooLargeError
	switch {
	// First: the wrapped error would mean that nothing was executed.
	case errors.As(err, &failed), errors.As(err, &unsure), errors.Is(err, metaapi.ErrOutcomeUnknown):
		err = Recode(api.ErrOutcomeUnknown, err)
	case errors.As(err, &large):
		err = &table.LimitError{What: "lock service: " + large.What, Limit: large.Limit, Got: large.Got}
	case corruptError(err) != nil:
		err = corruptError(err)
	case errors.Is(err, blobfs.ErrDiskFull), errors.Is(err, metaapi.ErrDiskFull):
		err = Recode(api.ErrDiskFull, err)
	case LockServiceAway(err):
		err = fmt.Errorf("%w: the lock service does not answer: %s", api.ErrUnavailable, err.Error())
	case errors.Is(err, metaapi.ErrClosed):
		err = Recode(api.ErrUnavailable, err)
	case errors.As(err, &changed):
		err = Recode(api.ErrConflict, err)
	default:
		err = tabletError(err)
	}
	return api.ToRPC(err)
}

// corruptError converts errors of corrupt files, rows and records, and returns nil for others.
func corruptError(err error) error {
	var extent *blobfs.CorruptError
	var file *sstable.CorruptError
	var row *metadata.FormatError
	var record *token.RecordError
	switch {
	case errors.As(err, &extent):
		return &api.CorruptError{File: extent.File, Offset: extent.Offset, Err: errors.New(err.Error())}
	case errors.As(err, &file):
		return &api.CorruptError{File: file.File, Offset: file.Offset, Err: errors.New(err.Error())}
	case errors.As(err, &row):
		return &api.CorruptError{File: metadata.Name, Err: errors.New(err.Error())}
	case errors.As(err, &record):
		return &api.CorruptError{File: "lock service", Err: errors.New(err.Error())}
	}
	return nil
}

// LockServiceAway reports whether err means that the lock service has no leader, or that the session was lost because of that. In
// both cases nothing was changed.
func LockServiceAway(err error) bool {
	return errors.Is(err, metaapi.ErrNotReady) || errors.Is(err, metaapi.ErrNoSession)
}

// Recode returns an error of the kind as with the text of err. It does not wrap err: an error from another node has a code of that
// node's API.
func Recode(as, err error) error { return fmt.Errorf("%w: %s", as, err.Error()) }

// Begin begins a request: decoded is the error of decoding it, or nil. It applies the options that all methods have, and reports whether
// the request was decoded and its deadline leaves time. If not, it has answered the call.
func Begin(c *rpc.Call, decoded error, o *api.Options) bool {
	if decoded != nil {
		Fail(c, decoded)
		return false
	}
	if r := c.Trace(); r != nil && len(o.TraceID) > 0 {
		r.Parent, _ = trace.Parse(o.TraceID) // other ids are not those of traces
	}
	if o.Timeout > 0 {
		c.SetTimeout(o.Timeout)
	}
	if c.Expired() {
		c.Fail(Expired("the deadline passed before the call was begun"))
		return false
	}
	return true
}

// Expired returns the error of a request that was not begun in time.
func Expired(message string) error {
	return &rpc.Error{Code: rpc.CodeDeadlineExceeded, Message: message, Details: map[string]any{"executed": 0}}
}

// tabletError converts errors of tablet changes to their API form.
func tabletError(err error) error {
	for _, k := range [...]struct{ is, as error }{
		{tablet.ErrBadSplitRow, api.ErrBadSplit}, {tablet.ErrNoSplitRow, api.ErrBadSplit},
		{tablet.ErrNotNeighbours, api.ErrConflict}, {tablet.ErrMetaChanged, api.ErrConflict},
		{master.ErrBusy, api.ErrTabletBusy}, {master.ErrGone, api.ErrNoTablet},
		{master.ErrNotAlive, api.ErrNodeNotAlive}, {master.ErrNotMaster, api.ErrUnavailable},
	} {
		if errors.Is(err, k.is) {
			return Recode(k.as, err)
		}
	}
	return err
}

// BadRequest returns the error of an invalid request.
func BadRequest(err error) error { return &rpc.Error{Code: rpc.CodeBadRequest, Message: err.Error()} }

// IsRefusal reports whether err means that access was denied, and not that rights are unknown.
func IsRefusal(err error) bool {
	return errors.Is(err, api.ErrPermission) || errors.Is(err, api.ErrUnauthenticated)
}

// Result encodes a result.
type Result func(e *wire.Encoder)
