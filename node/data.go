package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/sstable"
)

func (n *Node) handleData() {
	n.handle(api.MethodMutate, rpc.Inline, n.mutate)
	n.handle(api.MethodMutateRows, rpc.Spawned, n.mutateRows)
	n.handle(api.MethodRead, rpc.Pooled, n.read)
	n.handle(api.MethodReadRows, rpc.Spawned, n.readRows)
	n.handle(api.MethodCheckAndMutate, rpc.Spawned, n.checkAndMutate)
	n.handle(api.MethodReadModifyWrite, rpc.Spawned, n.readModifyWrite)
	n.handle(api.MethodScanOpen, rpc.Spawned, n.scanOpen)
	n.handle(api.MethodScanNext, rpc.Spawned, n.scanNext)
	n.handle(api.MethodScanClose, rpc.Inline, n.scanClose)
}

// fail answers a call with err, in the terms of the data API.
func fail(c *rpc.Call, err error) { c.Fail(toAPI(err)) }

// toAPI gives the errors of the parts that the data API does not know the form in
// which it tells them.
func toAPI(err error) error {
	var extent *blobfs.CorruptError
	var file *sstable.CorruptError
	var failed *commitlog.FailedError
	var unsure *tablet.UnsureError
	var changed *metaapi.GenerationError
	var large *metaapi.TooLargeError
	switch {
	// First: what such an error wraps would say that nothing was executed.
	case errors.As(err, &failed), errors.As(err, &unsure), errors.Is(err, metaapi.ErrOutcomeUnknown):
		err = told(api.ErrUnsure, err)
	case errors.As(err, &large):
		err = &table.LimitError{What: "lock service: " + large.What, Limit: large.Limit, Got: large.Got}
	case errors.As(err, &extent):
		err = &api.CorruptError{File: extent.File, Offset: extent.Offset, Err: errors.New(err.Error())}
	case errors.As(err, &file):
		err = &api.CorruptError{File: file.File, Offset: file.Offset, Err: errors.New(err.Error())}
	case errors.Is(err, blobfs.ErrDiskFull), errors.Is(err, metaapi.ErrDiskFull):
		err = told(api.ErrDiskFull, err)
	case lockServiceAway(err):
		err = fmt.Errorf("%w: the lock service does not answer: %s", api.ErrUnavailable, err.Error())
	case errors.Is(err, metaapi.ErrClosed):
		err = told(api.ErrUnavailable, err)
	case errors.As(err, &changed):
		err = told(api.ErrConflict, err)
	default:
		err = toldOfTablets(err)
	}
	return api.ToRPC(err)
}

// lockServiceAway says whether err is that no leader of the lock service answers, or that the
// session with it was lost over that: nothing was changed.
func lockServiceAway(err error) bool {
	return errors.Is(err, metaapi.ErrNotReady) || errors.Is(err, metaapi.ErrNoSession)
}

// told returns an error that is one of the data API's and says what err does. Of err's own
// chain nothing is left: if another node answered it, it has a code of that node's API.
func told(as, err error) error { return fmt.Errorf("%w: %s", as, err.Error()) }

// begin takes over the options that all methods have, and says whether there is
// still time to answer.
func begin(c *rpc.Call, o *api.Options) bool {
	if o.Timeout > 0 {
		c.SetTimeout(o.Timeout)
	}
	if c.Expired() {
		c.Fail(expired("the deadline passed before the call was begun"))
		return false
	}
	return true
}

// expired is the error of what was not begun in time.
func expired(message string) error {
	return &rpc.Error{Code: rpc.CodeDeadlineExceeded, Message: message, Details: map[string]any{"executed": 0}}
}

var mutateRequests = sync.Pool{New: func() any { return new(api.MutateRequest) }}

// isSystem says whether a table is the cluster's own. That protects it from mistakes, not from malice:
// anybody can say that he is a node.
func isSystem(table string) bool { return table == metadata.Name }

// mutate runs on the connection's reader: it only puts the mutation into the
// commit log's batch. When it would have to wait, it goes on elsewhere.
func (n *Node) mutate(c *rpc.Call) {
	r := mutateRequests.Get().(*api.MutateRequest)
	if err := r.Decode(&c.Params, c.NumParams, &n.limits); err != nil {
		mutateRequests.Put(r)
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		mutateRequests.Put(r)
		return
	}
	if isSystem(r.Table) {
		mutateRequests.Put(r)
		fail(c, api.ErrSystemTable)
		return
	}
	name, row := r.Table, r.Row.Row // r is another call's before the answer, the message is not
	done := func(timestamp int64, err error) {
		if err != nil {
			fail(c, n.astray(err, name, row))
			return
		}
		c.Reply(func(e *wire.Encoder) { api.AppendTimestamp(e, timestamp) })
	}
	if n.tabletsOf(r.Table).ApplyNow(r.Table, &r.Row, done) {
		mutateRequests.Put(r)
		return
	}
	// As many of these as requests in flight, which rpc bounds.
	go func() {
		n.tabletsOf(r.Table).Apply(r.Table, &r.Row, done)
		mutateRequests.Put(r)
	}()
}

func (n *Node) mutateRows(c *rpc.Call) {
	var r api.MutateRowsRequest
	if err := r.Decode(&c.Params, c.NumParams, &n.limits); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	if isSystem(r.Table) {
		fail(c, api.ErrSystemTable)
		return
	}
	type outcome struct {
		timestamp int64
		err       error
	}
	outcomes := make([]outcome, len(r.Rows))
	var left atomic.Int64
	left.Store(int64(len(r.Rows)) + 1)
	finish := func() {
		if left.Add(-1) > 0 {
			return
		}
		c.Reply(func(e *wire.Encoder) {
			e.Array(len(outcomes))
			for i := range outcomes {
				var err error
				if outcomes[i].err != nil {
					err = toAPI(n.astray(outcomes[i].err, r.Table, r.Rows[i].Row))
				}
				api.AppendMutateResult(e, outcomes[i].timestamp, err)
			}
		})
	}
	// A row that is refused after it has waited tells what the rest would wait for.
	var refused atomic.Pointer[error]
	for i := range r.Rows {
		if c.Expired() {
			outcomes[i].err = expired("the deadline passed before the row's turn came")
			finish()
			continue
		}
		if err := refused.Load(); err != nil {
			outcomes[i].err = *err
			finish()
			continue
		}
		n.tabletsOf(r.Table).Apply(r.Table, &r.Rows[i], func(timestamp int64, err error) {
			outcomes[i] = outcome{timestamp, err}
			if err != nil && refusesWrites(err) {
				refused.Store(&err)
			}
			finish()
		})
	}
	finish()
}

var readRequests = sync.Pool{New: func() any { return new(api.ReadRequest) }}

func (n *Node) read(c *rpc.Call) {
	r := readRequests.Get().(*api.ReadRequest)
	defer readRequests.Put(r)
	if err := r.Decode(&c.Params, c.NumParams, &n.limits); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	f, err := n.filters.program(r.Filter, &n.limits)
	if err != nil {
		fail(c, err)
		return
	}
	answered := false
	ctx := callContext{context.Background(), c.Deadline()}
	err = n.tabletsOf(r.Table).ReadRow(ctx, r.Table, r.Row, f, func(key []byte, cells []table.Cell) error {
		if tooLarge(cells, api.ResultBytesMax) {
			return &api.RowTooLargeError{Limit: api.ResultBytesMax}
		}
		answered = true
		c.Reply(func(e *wire.Encoder) { api.AppendRow(e, key, cells) })
		return nil
	})
	switch {
	case answered:
	case err != nil:
		fail(c, n.astray(err, r.Table, r.Row))
	default:
		c.Reply(nil)
	}
}

// tooLarge says whether a row's cells are more than limit bytes.
func tooLarge(cells []table.Cell, limit int) bool {
	for i := range cells {
		if limit -= len(cells[i].Family) + len(cells[i].Qualifier) + len(cells[i].Value) + 16; limit < 0 {
			return true
		}
	}
	return false
}

// readRowsBytes is what the result of so many rows is taken to be. How large rows
// are is not known before they are read.
func readRowsBytes(rows int) int { return 16 << 10 * (1 + rows) }

func (n *Node) readRows(c *rpc.Call) {
	var r api.ReadRowsRequest
	if err := r.Decode(&c.Params, c.NumParams, &n.limits); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	f, err := n.filters.program(r.Filter, &n.limits)
	if err != nil {
		fail(c, err)
		return
	}
	release, err := n.results.take(c.Context(), readRowsBytes(len(r.Rows)))
	if err != nil {
		fail(c, err)
		return
	}
	defer release()
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(len(r.Rows))
	for _, row := range r.Rows {
		if c.Expired() {
			c.Fail(rpc.Errorf(rpc.CodeDeadlineExceeded, "the deadline passed while rows were read"))
			return
		}
		found := false
		err := n.tabletsOf(r.Table).ReadRow(c.Context(), r.Table, row, f, func(key []byte, cells []table.Cell) error {
			if tooLarge(cells, api.ResultBytesMax-e.Len()) {
				return &table.LimitError{What: api.ResultBytes, Limit: api.ResultBytesMax, Got: api.ResultBytesMax + 1}
			}
			found = true
			api.AppendRow(e, key, cells)
			return nil
		})
		if err != nil {
			fail(c, n.astray(err, r.Table, row))
			return
		}
		if !found {
			e.Nil()
		}
	}
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
}

func (n *Node) checkAndMutate(c *rpc.Call) {
	var r api.CheckAndMutateRequest
	if err := r.Decode(&c.Params, c.NumParams, &n.limits); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	if isSystem(r.Table) && !r.System {
		fail(c, api.ErrSystemTable)
		return
	}
	f, err := n.filters.program(r.Predicate, &n.limits)
	if err != nil {
		fail(c, err)
		return
	}
	matched, err := n.tabletsOf(r.Table).CheckAndMutate(c.Context(), r.Table, r.Row, f, r.True, r.False)
	if err != nil {
		fail(c, n.astray(err, r.Table, r.Row))
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Bool(matched) })
}

func (n *Node) readModifyWrite(c *rpc.Call) {
	var r api.ReadModifyWriteRequest
	if err := r.Decode(&c.Params, c.NumParams, &n.limits); err != nil {
		fail(c, err)
		return
	}
	if !begin(c, &r.Options) {
		return
	}
	if isSystem(r.Table) {
		fail(c, api.ErrSystemTable)
		return
	}
	row, err := n.tabletsOf(r.Table).ReadModifyWrite(c.Context(), r.Table, r.Row, r.Rules)
	if err != nil {
		fail(c, n.astray(err, r.Table, r.Row))
		return
	}
	c.Reply(func(e *wire.Encoder) { api.AppendRow(e, row.Key, row.Cells) })
}
