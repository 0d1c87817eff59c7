package workload

import (
	"context"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// viewName is the view of a table: it has the first family, and the rows from viewStart on.
const (
	viewName  = "half"
	viewStart = "8"
)

// viewRows are the prefixes of the rows of a view.
var viewRows = [][]byte{[]byte("8"), []byte("9"), []byte("a"), []byte("b"), []byte("c"), []byte("d"), []byte("e"), []byte("f")}

// view adds the view of a table, uses it, drops it, and tries to use it again.
func (c *operator) view(all context.Context) {
	t := c.table()
	if t.Dropped {
		return
	}
	family := t.Families[0].Name
	c.changeView(all, t, AddView, table.Change{Op: table.ChangeAddView, View: &table.ViewChange{
		View: *table.NewView(viewName, viewRows, table.ViewFamily{Name: family, Prefixes: [][]byte{nil}})}})
	c.useView(all, t, 4)
	if c.r.IntN(2) == 0 {
		c.changeView(all, t, DropView, table.Change{Op: table.ChangeDropView, View: &table.ViewChange{View: table.View{Name: viewName}}})
	}
	c.useView(all, t, 3)
}

func (c *operator) changeView(all context.Context, t *TablePlan, kind Kind, change table.Change) {
	ctx, cancel := c.timeout(all)
	defer cancel()
	op := c.on(t, Op{Kind: kind, View: viewName})
	_, err := c.db.Tables().Alter(ctx, op.name(), change)
	c.history.End(op, err)
}

// useView makes n operations through the view of a table.
func (c *operator) useView(all context.Context, t *TablePlan, n int) {
	for range n {
		ctx, cancel := c.timeout(all)
		switch row := c.row(); c.r.IntN(3) {
		case 0:
			c.readView(ctx, t, row)
		case 1:
			c.writeView(ctx, t, row)
		case 2:
			c.scanView(ctx, t)
		}
		cancel()
		c.pause(all, time.Second)
	}
}

// readView reads a row through the view. The view has nothing of the rows before its start.
func (c *operator) readView(ctx context.Context, t *TablePlan, row string) {
	op := Op{Kind: Read, Row: row, View: viewName, Families: []string{t.Families[0].Name}}
	if row < viewStart {
		op.Kind = ReadOutside
	}
	op = c.on(t, op)
	found, err := c.in(op).Get(ctx, row)
	if op.Cells = c.history.cells(found); op.Kind == ReadOutside && len(op.Cells) > 0 {
		op.Bad = "a view has a row that is not of it"
	}
	c.history.End(op, err)
}

// writeView writes a row through the view.
func (c *operator) writeView(ctx context.Context, t *TablePlan, row string) {
	change := Change{Kind: Set, Column: t.Families[0].Name + ":" + valueQualifiers[0], Value: c.value()}
	op := c.on(t, Op{Kind: Write, Row: row, View: viewName, Changes: []Change{change}})
	err := c.in(op).Apply(ctx, c.history.mutation(row, op.Changes))
	if row < viewStart && err == nil {
		op.Bad = "a row is changed through a view that it is not of"
	}
	c.history.End(op, err)
}

// scanView scans the table through the view.
func (c *operator) scanView(ctx context.Context, t *TablePlan) {
	s := &Scan{Start: viewStart}
	op := c.on(t, Op{Kind: ScanAll, View: viewName, Families: []string{t.Families[0].Name}, Scan: s})
	result := *s
	rows := c.in(op).Scan(ctx, client.BatchRows(1+c.r.IntN(20)))
	for rows.Next() {
		result.Rows = append(result.Rows, ScanRow{string(rows.Row().Key), c.history.cells(rows.Row())})
	}
	err := rows.Close()
	result.Whole = err == nil
	op.Scan = &result
	c.history.End(op, err)
}
