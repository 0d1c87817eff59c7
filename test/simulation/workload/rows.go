package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// Qualifiers of the columns that are set.
var valueQualifiers = []string{"v", "w"}

// rowClient is the part of a client that uses rows.
type rowClient struct{ *worker }

// do makes one operation on rows.
func (c *rowClient) do(ctx context.Context, f Feature) {
	t := c.table()
	switch f {
	case Reads:
		c.read(ctx, t, c.row(), false)
	case Writes:
		c.write(ctx, t, c.row(), c.sets(t, 1+c.r.IntN(3)))
	case Deletes:
		row := c.row()
		c.write(ctx, t, row, c.deletion(t))
		if c.r.IntN(3) == 0 {
			c.readColumn(ctx, t, row, false)
		}
	case Stamps:
		c.write(ctx, t, c.row(), c.stamped(t))
	case Aggregates:
		c.write(ctx, t, c.row(), c.operands(t))
	case Tokens:
		c.repeat(ctx, t)
	case Batches:
		c.batch(ctx, t)
	case Checks:
		c.check(ctx, t)
	case Counters:
		c.modify(ctx, t, Change{Kind: Increment, Column: c.family(t) + ":" + counterQualifier, N: c.r.Int64N(10) - 2})
	case Appends:
		c.modify(ctx, t, Change{Kind: Append, Column: c.family(t) + ":" + logQualifier, Value: c.entry()})
	case Scans:
		c.scan(ctx, t, c.rangeOf(), false)
	default:
		panic("BUG: a feature without an operation: " + string(f))
	}
}

// family returns one of the table's families whose cells are set.
func (c *rowClient) family(t *TablePlan) string {
	n := len(t.Families) - len(t.aggregates())
	return t.Families[c.r.IntN(n)].Name
}

// anyFamily returns one of the table's families.
func (c *rowClient) anyFamily(t *TablePlan) string {
	return t.Families[c.r.IntN(len(t.Families))].Name
}

func (c *rowClient) column(t *TablePlan) string {
	return c.family(t) + ":" + valueQualifiers[c.r.IntN(len(valueQualifiers))]
}

// sets returns up to n sets of different columns, each with a value of its own.
func (c *rowClient) sets(t *TablePlan, n int) (changes []Change) {
	used := map[string]bool{}
	for range n {
		if column := c.column(t); !used[column] {
			used[column] = true
			changes = append(changes, Change{Kind: Set, Column: column, Value: c.value()})
		}
	}
	return changes
}

// deletion returns a deletion, sometimes with a set after it.
func (c *rowClient) deletion(t *TablePlan) (changes []Change) {
	switch c.r.IntN(3) {
	case 0:
		changes = append(changes, Change{Kind: DeleteRow})
	case 1:
		changes = append(changes, Change{Kind: DeleteCells, Column: c.anyFamily(t)})
	case 2:
		changes = append(changes, Change{Kind: DeleteColumn, Column: c.column(t)})
	}
	if c.r.IntN(3) == 0 {
		changes = append(changes, c.sets(t, 1)...)
	}
	return changes
}

// mutation returns changes as a mutation; nil if there are none.
func (h *History) mutation(row string, changes []Change) *client.RowMutation {
	if len(changes) == 0 {
		return nil
	}
	m := client.NewRowMutation(row)
	for _, x := range changes {
		h.add(m, x)
	}
	return m
}

func (c *rowClient) write(ctx context.Context, t *TablePlan, row string, changes []Change) Op {
	op := c.on(t, Op{Kind: Write, Row: row, Changes: changes})
	stamp := int64(0)
	err := c.in(op).Apply(ctx, c.history.mutation(row, changes), client.ReturnTimestamp(&stamp))
	if stamp != 0 {
		op.Stamp = c.history.stamp(stamp)
	} else if err == nil && slices.ContainsFunc(changes, func(x Change) bool { return x.Kind == Set && x.At == 0 }) {
		op.Bad = "the answer to a write has no timestamp"
	}
	return c.history.End(op, err)
}

// repeat writes a row with an idempotency token, several times: the changes are one operation. After a failure it ends, since a later
// attempt might succeed. A table that is created again has no tokens of the one before it, and a row that was cleared has none of before.
func (c *rowClient) repeat(ctx context.Context, t *TablePlan) {
	changes := c.sets(t, 2)
	if c.plan.Has(Aggregates) {
		changes = c.operands(t)
	}
	if t.Dropped || c.plan.Has(Clears) {
		c.write(ctx, t, c.row(), changes)
		return
	}
	row, id := c.row(), binary.BigEndian.AppendUint64(nil, c.r.Uint64())
	op := c.on(t, Op{Kind: Write, Row: row, Changes: changes})
	m := c.history.mutation(row, changes).WithToken(id, time.Now())
	op = c.history.End(op, c.in(op).Apply(ctx, m))
	for n := c.r.IntN(4); n > 0 && op.Outcome != Failed; n-- {
		c.pause(ctx, 2*time.Second)
		if err := c.in(op).Apply(ctx, m); err == nil && op.Outcome == Unknown {
			op = c.history.End(op, nil)
		}
	}
}

// batch writes several rows in one call, sometimes one twice; each mutation is an operation, and they are made in any order.
func (c *rowClient) batch(ctx context.Context, t *TablePlan) {
	under := c.under(t)
	var ops []Op
	var ms []*client.RowMutation
	used := map[string]bool{}
	for range 2 + c.r.IntN(8) {
		row := c.row()
		if c.plan.Has(Stamps) && len(ops) > 0 && c.r.IntN(4) == 0 {
			row = ops[c.r.IntN(len(ops))].Row
		} else if used[row] {
			continue
		}
		used[row] = true
		changes := c.sets(t, 2)
		switch n := c.r.IntN(6); {
		case n == 0 && c.plan.Has(Deletes):
			changes = c.deletion(t)
		case n == 1 && c.plan.Has(Stamps):
			changes = c.stamped(t)
		case n == 2 && c.plan.Has(Aggregates):
			changes = c.operands(t)
		}
		op := Op{Kind: Write, Table: t.Name, Under: under, Row: row, Changes: changes}
		ops = append(ops, c.begin(op))
		ms = append(ms, c.history.mutation(row, changes))
	}
	err := c.in(ops[0]).ApplyAll(ctx, ms)
	var each *client.BatchError
	for i, op := range ops {
		if errors.As(err, &each) {
			c.history.End(op, each.Errs[i])
			continue
		}
		c.history.End(op, err)
	}
}

// check reads a row and writes it if a column of it is unchanged or, sometimes, whatever it is.
func (c *rowClient) check(ctx context.Context, t *TablePlan) {
	row := c.row()
	op := Op{Kind: Check, Row: row, Predicate: &Predicate{Column: c.column(t)}, Changes: c.sets(t, 2)}
	if c.r.IntN(3) > 0 {
		if found := c.read(ctx, t, row, false); found.Outcome == OK && len(found.Cells) > 0 {
			cell := found.Cells[c.r.IntN(len(found.Cells))]
			if _, q, _ := client.ParseColumn(cell.Column); string(q) != counterQualifier && string(q) != logQualifier {
				*op.Predicate = Predicate{cell.Column, cell.Values[0]}
			}
		}
	}
	switch c.r.IntN(4) {
	case 0:
		op.Otherwise = c.sets(t, 2)
	case 1:
		op.Changes, op.Otherwise = nil, op.Changes
	case 2:
		if c.plan.Has(Deletes) {
			op.Otherwise = c.deletion(t)
		}
	}
	if c.plan.Has(Stamps) && c.r.IntN(4) == 0 {
		op.Changes = c.stamped(t)
	}
	if c.plan.Has(Aggregates) && c.r.IntN(4) == 0 {
		op.Otherwise = c.operands(t)
	}
	op = c.on(t, op)
	matched, err := c.in(op).CheckAndMutate(ctx, row, op.Predicate.filter(), c.history.mutation(row, op.Changes), c.history.mutation(row, op.Otherwise))
	op.Matched = matched
	c.history.End(op, err)
}

// filter returns the predicate as a filter.
func (p *Predicate) filter() table.Filter {
	family, qualifier, err := client.ParseColumn(p.Column)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	chain := table.Chain{table.FamilyRegex(family), table.QualifierRegex(regexp.QuoteMeta(string(qualifier))), table.CellsPerColumnLimit(1)}
	if p.Value != "" {
		chain = append(chain, table.ValueRegex(regexp.QuoteMeta(p.Value+"|")+`\C*`))
	}
	return chain
}

// modify makes a read-modify-write of one rule.
func (c *rowClient) modify(ctx context.Context, t *TablePlan, x Change) {
	op := c.on(t, Op{Kind: Modify, Row: c.row(), Changes: []Change{x}})
	rule := client.IncrementRule(x.Column, x.N)
	if x.Kind == Append {
		rule = client.AppendRule(x.Column, []byte(x.Value))
	}
	row, err := c.in(op).ReadModifyWrite(ctx, op.Row, rule)
	if op.Cells = c.history.cells(row); len(op.Cells) == 1 && !Explicit(op.Cells[0].Stamps[0]) {
		op.Stamp = op.Cells[0].Stamps[0]
	}
	c.history.End(op, err)
}

// readColumn reads one column of a row, which filters of files may exclude.
func (c *rowClient) readColumn(ctx context.Context, t *TablePlan, row string, final bool) Op {
	op := c.on(t, Op{Kind: Read, Row: row, Final: final, Families: []string{c.column(t)}})
	found, err := c.in(op).Get(ctx, row, client.Columns(op.Families...))
	op.Cells = c.history.cells(found)
	return c.history.End(op, err)
}

// read reads a row, sometimes only a family or a column of it.
func (c *rowClient) read(ctx context.Context, t *TablePlan, row string, final bool) Op {
	op := Op{Kind: Read, Row: row, Final: final}
	var opts []client.ReadOption
	if n := c.r.IntN(6); !final && n < 2 {
		op.Families = []string{c.family(t)}
		opts = append(opts, client.Families(op.Families...))
		if n == 1 {
			op.Families = []string{c.column(t)}
			opts = []client.ReadOption{client.Columns(op.Families...)}
		}
	}
	op = c.on(t, op)
	found, err := c.in(op).Get(ctx, row, opts...)
	op.Cells = c.history.cells(found)
	return c.history.End(op, err)
}

// rangeOf returns a scan of the whole table, or of a part of it.
func (c *rowClient) rangeOf() *Scan {
	s := &Scan{}
	if c.r.IntN(3) > 0 {
		s.Start = c.row()
	}
	if c.r.IntN(3) == 0 {
		s.End = c.row()
	}
	if s.Start == s.End { // no row, for which the client makes no call
		s.End = ""
	}
	if s.End != "" && s.Start > s.End {
		s.Start, s.End = s.End, s.Start
	}
	if c.r.IntN(3) > 0 {
		s.Limit = 1 + c.r.Int64N(40)
	}
	return s
}

// scan scans a table in small batches, so that tablets may be moved and split meanwhile.
func (c *rowClient) scan(ctx context.Context, t *TablePlan, s *Scan, final bool) Op {
	op := c.on(t, Op{Kind: ScanAll, Scan: s, Final: final})
	opts := []client.ScanOption{client.Start(s.Start), client.End(s.End), client.BatchRows(1 + c.r.IntN(20>>(3*c.r.IntN(2))))}
	if s.Limit > 0 {
		opts = append(opts, client.Limit(s.Limit))
	}
	result := *s // s belongs to the history now
	rows := c.in(op).Scan(ctx, opts...)
	slow := c.r.IntN(32) // the row at which the application pauses for long
	for rows.Next() {
		if !final && len(result.Rows) == slow && c.r.IntN(4) == 0 {
			c.pause(ctx, c.plan.Slow)
		}
		result.Rows = append(result.Rows, ScanRow{string(rows.Row().Key), c.history.cells(rows.Row())})
		if !final && c.r.IntN(30) == 0 {
			c.pause(ctx, c.plan.Pace) // the application is slow
		}
	}
	err := rows.Close()
	result.Whole = err == nil && (s.Limit == 0 || int64(len(result.Rows)) < s.Limit)
	op.Scan = &result
	return c.history.End(op, err)
}
