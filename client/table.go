package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Table reads and changes one table. It is safe for concurrent use.
type Table struct {
	client *Client
	name   string
	view   string // to which requests are confined; empty for the whole table
}

// Table returns the table with that name, without checking that it exists.
func (c *Client) Table(name string) *Table { return &Table{client: c, name: name} }

// View returns the table confined to one of its views: reads show, and changes may concern, only rows and columns of the view. The caller needs rights on
// the view or on the table. Its changes cannot be read by Changes. Requests fail with table.ErrNoView if there is no such view, or the caller has no right within it.
func (t *Table) View(name string) *Table { return &Table{client: t.client, name: t.name, view: name} }

// Name returns the table's name.
func (t *Table) Name() string { return t.name }

// ApplyOption tunes Apply and ApplyAll.
type ApplyOption func(*applyOptions)

type applyOptions struct {
	replay    Replay
	timestamp *int64
}

// WithReplay sets which changes of this call may be sent again after their outcome became unknown.
// It overrides the Config.
func WithReplay(r Replay) ApplyOption {
	return func(o *applyOptions) { o.replay = r }
}

// ReturnTimestamp makes Apply set *ts to the timestamp, in microseconds, that the server assigned
// to cells Set without one; 0 if there were none.
func ReturnTimestamp(ts *int64) ApplyOption {
	return func(o *applyOptions) { o.timestamp = ts }
}

func (c *Client) applyOptions(opts []ApplyOption) applyOptions {
	o := applyOptions{}
	for _, opt := range opts {
		opt(&o)
	}
	if o.replay == ReplayDefault {
		o.replay = c.cfg.Replay
	}
	return o
}

// replayable reports whether m may be sent again after its outcome became unknown.
func (o *applyOptions) replayable(m *RowMutation) bool {
	return m.rm.Token != nil || o.replay == ReplayAll || o.replay == ReplayIdempotent && m.idempotent()
}

// Apply makes the changes of m atomically. When it returns nil, they are durable.
//
// Errors: those of an invalid m (table.ErrBadName, ErrBadRowKey, ErrNoMutations, ErrBadTimestamp,
// *table.LimitError, *table.NoFamilyError); ErrNoTable; ErrDiskFull; after retries,
// *OverloadedError, ErrNotServing, ErrUnavailable, *UnreachableError. With these, nothing was
// changed. With an *AmbiguousError, m may have been applied or may be applied later, even after ctx
// has ended.
func (t *Table) Apply(ctx context.Context, m *RowMutation, opts ...ApplyOption) error {
	if err := m.check(); err != nil {
		return err
	}
	k := applyCalls.Get().(*applyCall)
	defer k.release()
	k.req.Table, k.req.View, k.call.table, k.req.Row = t.name, t.view, t.name, m.rm
	k.call.row = m.rm.Row
	timestamp := (*int64)(nil)
	if len(opts) > 0 || t.client.cfg.Replay != ReplayNever || m.rm.Token != nil {
		o := t.client.applyOptions(opts)
		k.call.safe = o.replayable(m)
		timestamp = o.timestamp
	}
	if err := t.client.calls.do(ctx, &k.call); err != nil {
		return err
	}
	if timestamp != nil {
		*timestamp = k.timestamp
	}
	return nil
}

// applyCall holds everything that a mutate call needs in one allocation.
type applyCall struct {
	call      call
	req       api.MutateRequest
	timestamp int64
}

var applyCalls = sync.Pool{New: func() any {
	k := &applyCall{call: call{method: api.MethodMutate, change: true}}
	k.call.encode, k.call.id, k.call.traceID = k.req.Append, &k.req.TableID, &k.req.TraceID
	k.call.decode = func(d *wire.Decoder) error {
		k.timestamp = api.DecodeTimestamp(d)
		return nil
	}
	return k
}}

func (k *applyCall) release() {
	k.req.Row, k.call.row, k.call.safe, k.timestamp = table.RowMutation{}, nil, false, 0
	applyCalls.Put(k)
}

// CheckAndMutate reads a row through a filter and atomically applies one of two mutations: then if
// the filter passes any cell, otherwise if not. A nil predicate passes all cells, so it checks
// whether the row exists. then and otherwise are mutations of the same row; nil means no change.
// matched reports whether the filter passed a cell.
//
// It is never sent twice. Errors: those of Apply, ErrBadFilter.
func (t *Table) CheckAndMutate(ctx context.Context, row string, predicate table.Filter, then, otherwise *RowMutation) (matched bool, err error) {
	req := api.CheckAndMutateRequest{TableOptions: api.TableOptions{View: t.view}, Table: t.name, Row: []byte(row), Predicate: encodeFilter(predicate)}
	for _, branch := range []struct {
		m  *RowMutation
		to *[]table.Mutation
	}{{then, &req.True}, {otherwise, &req.False}} {
		if branch.m == nil || branch.m.Len() == 0 {
			continue
		}
		if err := branch.m.check(); err != nil {
			return false, err
		}
		if branch.m.rm.Token != nil {
			return false, fmt.Errorf("%w: a conditional mutation has none", table.ErrBadToken)
		}
		if branch.m.Row() != row {
			return false, fmt.Errorf("mutation of row %q in a check of row %q", branch.m.Row(), row)
		}
		*branch.to = branch.m.rm.Mutations
	}
	return t.checkAndMutate(ctx, &req)
}

func (t *Table) checkAndMutate(ctx context.Context, req *api.CheckAndMutateRequest) (matched bool, err error) {
	k := call{method: api.MethodCheckAndMutate, table: t.name, row: req.Row, id: &req.TableID, traceID: &req.TraceID, change: true, encode: req.Append}
	k.decode = func(d *wire.Decoder) error {
		matched = d.Bool()
		return nil
	}
	err = t.client.calls.do(ctx, &k)
	return matched, err
}

// ChangeMetadata applies a change to a METADATA row, and reports whether the row was at the
// expected generation. It is for nodes only: a change by any process but the tablet's server or the
// master loses data. Errors: those of CheckAndMutate.
func (t *Table) ChangeMetadata(ctx context.Context, c *metadata.Change) (made bool, err error) {
	matched, err := t.checkAndMutate(ctx, &api.CheckAndMutateRequest{
		Table: t.name, Row: c.Key, Predicate: encodeFilter(c.Predicate), True: c.Then, False: c.Else, System: true,
	})
	return err == nil && c.Matched(matched), err
}

// AppendRule returns a rule that appends value to the newest value of a column. ReadModifyWrite
// reports an invalid column name.
func AppendRule(column string, value []byte) table.Rule {
	family, qualifier, _ := ParseColumn(column)
	return table.Rule{Op: table.RuleAppend, Family: family, Qualifier: qualifier, Value: value}
}

// IncrementRule returns a rule that adds n to the newest value of a column, an 8-byte big-endian
// integer. A missing value counts as 0. The sum wraps around at the range of an int64, as in Cloud
// Bigtable.
func IncrementRule(column string, n int64) table.Rule {
	family, qualifier, _ := ParseColumn(column)
	return table.Rule{Op: table.RuleIncrement, Family: family, Qualifier: qualifier, Amount: n}
}

// ReadModifyWrite atomically applies rules to a row in order, with the server's timestamp, and
// returns the cells that it wrote.
//
// It is never sent twice. Errors: those of Apply, table.ErrNoRules, ErrNotNumber.
func (t *Table) ReadModifyWrite(ctx context.Context, row string, rules ...table.Rule) (*table.Row, error) {
	return t.ReadModifyWriteWithin(ctx, row, 0, rules...)
}

// ReadModifyWriteWithin is ReadModifyWrite with a bound of the result's memory, as RowBytesMax estimates it; 0 means no bound. If the result is larger, the
// row is not changed, and the error is a *RowTooLargeError, whose Limit is the bound. Nodes of earlier versions reject a bound.
func (t *Table) ReadModifyWriteWithin(ctx context.Context, row string, bytesMax int64, rules ...table.Rule) (*table.Row, error) {
	if len(rules) == 0 {
		return nil, table.ErrNoRules
	}
	req := api.ReadModifyWriteRequest{TableOptions: api.TableOptions{View: t.view}, Table: t.name, Row: []byte(row), Rules: rules, RowBytes: bytesMax}
	for i := range rules {
		if err := rules[i].Validate(nil, nil); err != nil {
			return nil, &table.ElementError{What: "rule", Index: i, Err: err}
		}
	}
	var result *table.Row
	k := call{method: api.MethodReadModifyWrite, table: t.name, row: req.Row, id: &req.TableID, traceID: &req.TraceID, change: true, keep: true, encode: req.Append}
	k.safe = planted.On(planted.IncrementAgain)
	k.decode = func(d *wire.Decoder) (err error) {
		result, err = decodeRow(d, nil)
		return err
	}
	if err := t.client.calls.do(ctx, &k); err != nil {
		return nil, err
	}
	if result == nil {
		return nil, errAnswer("%s returned no row", k.method)
	}
	return result, nil
}

// Increment adds n to the number in a column and returns the sum, which wraps around. See
// IncrementRule and ReadModifyWrite.
func (t *Table) Increment(ctx context.Context, row, column string, n int64) (int64, error) {
	value, err := t.modify(ctx, row, column, IncrementRule(column, n))
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("increment of %s returned %d bytes, want 8", column, len(value))
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

// Append appends value to the value of a column and returns the result. See ReadModifyWrite.
func (t *Table) Append(ctx context.Context, row, column string, value []byte) ([]byte, error) {
	return t.modify(ctx, row, column, AppendRule(column, value))
}

func (t *Table) modify(ctx context.Context, row, column string, rule table.Rule) ([]byte, error) {
	if _, _, err := ParseColumn(column); err != nil {
		return nil, err
	}
	result, err := t.ReadModifyWrite(ctx, row, rule)
	if err != nil {
		return nil, err
	}
	if len(result.Cells) != 1 {
		return nil, fmt.Errorf("%s of one column returned %d cells", api.MethodReadModifyWrite, len(result.Cells))
	}
	return result.Cells[0].Value, nil
}

// encodeFilter returns f in its wire encoding; nil for nil.
func encodeFilter(f table.Filter) []byte {
	if f == nil {
		return nil
	}
	e := wire.Encoder{}
	table.AppendFilter(&e, f)
	return e.Bytes()
}

// Families returns the names of the table's families. Errors: those of Tables.Describe.
func (t *Table) Families(ctx context.Context) ([]string, error) {
	info, err := t.client.Tables().Describe(ctx, t.name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(info.Schema.Families))
	for i := range names {
		names[i] = info.Schema.Families[i].Name
	}
	return names, nil
}
