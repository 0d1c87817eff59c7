package replication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/remote"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Bounds of what is accepted of a source, which may be another administrator's.
const (
	// answerBytesMax bounds an answer: one page of changes, 4 MiB of rows, or the description of a table with 100,000 tablets.
	answerBytesMax = 16 << 20
	// pageBytes bounds a page of changes, and idleBytes one that is waited for. All tables of a replication wait at once.
	pageBytes, idleBytes = 1 << 20, 16 << 10
	// pagesAtOnce is the number of tables of a replication that hold a page of changes, or rows, at a time.
	pagesAtOnce = 4
	// sourceTimeout bounds a request, or the read of one batch of rows.
	sourceTimeout = time.Minute
	// largeTimeout bounds how long a source holds the only place for large changes and cells.
	largeTimeout = time.Minute
	// movesMax is how often rows are read again that have changed while they were read.
	movesMax = 1000
	// changedRowsMax bounds the rows that change while one batch of rows is read, and drainPagesMax the pages of their changes, or of those of a large row.
	changedRowsMax, drainPagesMax = 100_000, 10_000
	// clearsMax bounds the ranges that are cleared meanwhile: tablets keep fewer.
	clearsMax = 1_000
)

// SourceError means that a source rejected or could not answer a request, or that its answer is one that no cluster of Stele gives.
type SourceError struct {
	Table string
	What  string // the request, or what is wrong; may be empty
	Err   error  // nil if What is wrong
}

func (e *SourceError) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("the source: table %.80q: %s: its answer is invalid, and nothing of it was made: check the addresses, or remove the replication", e.Table, e.What)
	case e.invalid():
		return fmt.Sprintf("the source: table %.80q: %s: its answer is invalid: %.300s: check the addresses, or remove the replication", e.Table, e.What, e.Err)
	}
	return fmt.Sprintf("the source: table %.80q: %s: %v", e.Table, e.What, e.Err)
}

func (e *SourceError) Unwrap() error { return e.Err }

// invalid reports whether the answer was not of the protocol.
func (e *SourceError) invalid() bool {
	var form *wire.FormatError
	return errors.As(e.Err, &form) || errors.Is(e.Err, client.ErrBadAnswer) || errors.Is(e.Err, table.ErrBadEncoding) || errors.Is(e.Err, rpc.ErrTooLarge) || errors.Is(e.Err, client.ErrBadToken)
}

// ofRequest returns the error of a request to the source.
func (f *follower) ofRequest(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, rpc.CodeBadRequest) && strings.Contains(err.Error(), `unknown option "clears"`) {
		err = fmt.Errorf("a node of the source is of an earlier version, whose change stream lacks deletions of row ranges: update the source before this cluster: %w", err)
	}
	return &SourceError{Table: f.table, What: what, Err: err}
}

// bad returns the error of an answer that a source may not give.
func (f *follower) bad(format string, args ...any) error {
	return &SourceError{Table: f.table, What: fmt.Sprintf(format, args...)}
}

// take takes a place for a page of changes, or for rows, of the replication. free releases it.
func (r *running) take(ctx context.Context) (free func(), err error) {
	return takePlace(ctx, r.pages)
}

func takePlace(ctx context.Context, places chan struct{}) (free func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// withLarge calls use with a client of the source that accepts answers as large as this node does, and with a context that ends after largeTimeout. One table of
// the node has such a client at a time. made is called with the ordinary context while the answer is held, and must not wait for another client.
func (f *follower) withLarge(ctx context.Context, use func(ctx context.Context, c *client.Client) error, made func(c *client.Client) error) error {
	for _, places := range []chan struct{}{f.run.large, f.large} { // one of the replication, so that another one waits for one of this
		free, err := takePlace(ctx, places)
		if err != nil {
			return err
		}
		defer free()
	}
	inTime, cancel := context.WithTimeout(ctx, largeTimeout)
	defer cancel()
	c, err := remote.Open(inTime, f.run.record.addrs, f.run.record.secret, client.Config{Dial: f.Dial, Logger: f.Log, RetryTimeMax: sourceRetry, MessageBytesMax: f.MessageBytesMax})
	if err != nil {
		return f.ofRequest("connect for a large change", err)
	}
	defer c.Close()
	if err := use(inTime, c); err != nil {
		return f.ofRequest("read a large change", err)
	}
	return made(c)
}

// drain calls each for the changes of rows before the call, and perhaps some later ones, in pages. It returns the version of the families. Large ones
// are read by large, unless it is nil: then the place for it is waited for.
func (f *follower) drain(ctx context.Context, from client.ChangesFrom, large *client.Client, each func([]client.Change) error) (families uint64, err error) {
	var failed error // of each
	n := 0
	take := func(got []client.Change) error {
		if n++; n > drainPagesMax {
			failed = f.bad("changes of rows after %.64q up to %.64q do not end", from.Start, from.End)
			return failed
		}
		if failed = f.checkChanges(got); failed == nil {
			failed = each(got)
		}
		return failed
	}
	from.Clears = true
	stream, err := f.from.Table(f.table).Changes(from)
	if err == nil {
		stream.Bound(pageBytes)
		err = stream.Drain(ctx, take)
	}
	if failed == nil && errors.Is(err, client.ErrRowTooLarge) {
		return f.drainLarge(ctx, stream.Token(), large, take)
	}
	if failed != nil {
		return 0, failed
	}
	if err != nil {
		return 0, f.ofRequest("read changes", err)
	}
	return stream.Families(), nil
}

// drainLarge is drain from a token on, for changes of any size.
func (f *follower) drainLarge(ctx context.Context, token string, large *client.Client, each func([]client.Change) error) (families uint64, err error) {
	drain := func(ctx context.Context, c *client.Client) error {
		stream, err := c.Table(f.table).Changes(client.ChangesFrom{Token: token, Clears: true})
		if err == nil {
			err = stream.Drain(ctx, each)
		}
		if err == nil {
			families = stream.Families()
		}
		return err
	}
	if large != nil {
		ctx, cancel := context.WithTimeout(ctx, largeTimeout)
		defer cancel()
		return families, f.ofRequest("read a large change", drain(ctx, large))
	}
	err = f.withLarge(ctx, drain, func(*client.Client) error { return nil })
	return families, err
}

// checkChanges checks changes that the source has returned: the tablet servers of this cluster would accept some that no source has.
func (f *follower) checkChanges(got []client.Change) error {
	for i := range got {
		x := &got[i]
		if x.Cleared != nil { // its rows are in those of the request
			if n := int64(max(len(x.Cleared.Start), len(x.Cleared.End))); n > f.Limits.RowKeyBytes+1 {
				return f.bad("a clear up to a row of %d bytes", n)
			}
			continue
		}
		if err := f.Limits.CheckRowKey(x.Row); err != nil {
			return f.bad("a change of row %.64q: %v", x.Row, err)
		}
		for j := range x.Mutations {
			if err := f.checkMutation(&x.Mutations[j]); err != nil {
				return f.bad("a change of row %.64q: %v", x.Row, err)
			}
		}
	}
	return nil
}

func (f *follower) checkMutation(m *table.Mutation) error {
	if m.Family == table.PositionFamily {
		return fmt.Errorf("family %q is reserved", m.Family)
	}
	if (m.Op == table.OpSet || m.Op.IsOperand()) && m.Timestamp < 0 { // the clock of this cluster would be used
		return &table.TimestampError{What: "timestamp is negative", Got: m.Timestamp}
	}
	if m.Op.IsOperand() { // which the family's aggregate checks
		plain := table.Set(m.Family, m.Qualifier, m.Timestamp, m.Value)
		m = &plain
	}
	return m.Validate(nil, f.Limits)
}

// checkRow checks a row that the source has returned for rows in last < row <= end, an empty one meaning no bound.
func (f *follower) checkRow(row *table.Row, last, end []byte) error {
	if err := f.Limits.CheckRowKey(row.Key); err != nil {
		return f.bad("row %.64q: %v", row.Key, err)
	}
	if len(last) > 0 && bytes.Compare(row.Key, last) <= 0 || len(end) > 0 && bytes.Compare(row.Key, end) > 0 {
		return f.bad("row %.64q, for rows after %.64q up to %.64q", row.Key, last, end)
	}
	return f.checkCells(row.Key, row.Cells)
}

func (f *follower) checkCells(row []byte, cells []table.Cell) error {
	for i := range cells {
		x := &cells[i]
		m := table.Set(x.Family, x.Qualifier, x.Timestamp, x.Value)
		if err := f.checkMutation(&m); err != nil {
			return f.bad("row %.64q: %v", row, err)
		}
	}
	return nil
}

// describe returns the schema of the source's table.
func (f *follower) describe(ctx context.Context) (*table.Schema, error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	info, err := f.from.Tables().Describe(ctx, f.table)
	if err != nil {
		return nil, f.ofRequest("describe the table", err)
	}
	if err := checkSchema(info, f.table); err != nil {
		return nil, f.bad("%v", err)
	}
	return info.Schema.Promote(), nil // of a table that follows another one itself
}

// checkSchema checks the description of a source's table.
func checkSchema(info *api.TableInfo, name string) error {
	switch s := info.Schema; {
	case s == nil:
		return errors.New("no schema")
	case s.Name != name:
		return fmt.Errorf("the schema of table %.80q", s.Name)
	case s.ID == 0:
		return errors.New("a schema without the id of the table")
	case s.Follows == "" && s.Family(table.PositionFamily) != nil:
		return fmt.Errorf("family %q is reserved", table.PositionFamily)
	}
	return nil
}

// rowState is the state of a row of the source at a position.
type rowState struct {
	client.RowPosition
	cells  []table.Cell
	schema *table.Schema // by which the row was read
}

// get reads a row of the source. The error is client.ErrRowTooLarge if it is over copyBytes, and errMoved if the families have changed: then the table has those now.
func (f *follower) get(ctx context.Context, row []byte, options ...client.ReadOption) (*rowState, error) {
	inTime, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	last := f.families.Load()
	got, at, err := f.from.Table(f.table).GetPositioned(inTime, string(row), append(options, client.RowBytesMax(copyBytes))...)
	if err != nil {
		return nil, f.ofRequest("read a row", err)
	}
	return f.stateOf(ctx, row, got, at, last)
}

// getLarge is get for a row of any size, of which it calls made.
func (f *follower) getLarge(ctx context.Context, row []byte, option client.ReadOption, made func(large *client.Client, got *rowState) error) error {
	var got *table.Row
	var at client.RowPosition
	last := f.families.Load()
	return f.withLarge(ctx, func(ctx context.Context, c *client.Client) (err error) {
		got, at, err = c.Table(f.table).GetPositioned(ctx, string(row), option)
		return err
	}, func(c *client.Client) error {
		state, err := f.stateOf(ctx, row, got, at, last)
		if err != nil {
			return err
		}
		return made(c, state)
	})
}

// stateOf checks what was read of a row, before which the table's families were last.
func (f *follower) stateOf(ctx context.Context, row []byte, got *table.Row, at client.RowPosition, last *families) (*rowState, error) {
	if last == nil || last.version != at.Families {
		_, err := f.syncFamilies(ctx, at.Families)
		return nil, cmp.Or(err, errMoved)
	}
	x := &rowState{RowPosition: at, schema: last.schema}
	if bytes.Compare(at.Start, row) >= 0 {
		return nil, f.bad("row %.64q, of rows after %.64q", row, at.Start)
	}
	if got == nil {
		return x, nil
	}
	if !bytes.Equal(got.Key, row) {
		return nil, f.bad("row %.64q instead of %.64q", got.Key, row)
	}
	x.cells = got.Cells
	return x, f.checkCells(row, got.Cells)
}
