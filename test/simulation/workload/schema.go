package workload

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// operator is the part of a client that changes tables, tablets, nodes, rights and quotas.
type operator struct{ *worker }

// createTable creates a table and reports whether it exists.
func (c *operator) createTable(all context.Context, t *TablePlan) bool {
	ctx, cancel := c.timeout(all)
	defer cancel()
	op := c.begin(Op{Kind: Create, Table: t.Name, Families: t.familyNames()})
	var schema *table.Schema
	var err error
	if len(t.SplitAt) > 0 {
		schema, err = c.db.Tables().CreateSplit(ctx, t.Name, t.SplitAt, t.Families...)
	} else {
		schema, err = c.db.Tables().Create(ctx, t.Name, t.Families...)
	}
	if err == nil {
		op.TableID = schema.ID
	}
	if op = c.history.End(op, err); op.Outcome == OK {
		return true
	}
	_, err = c.db.Tables().Describe(ctx, t.Name)
	return err == nil
}

// recreate drops a table and creates one with the same name.
func (c *operator) recreate(all context.Context) {
	t := c.table()
	if !t.Dropped {
		return
	}
	ctx, cancel := c.timeout(all)
	moves := c.moveBeside(ctx, t)
	using, stop := context.WithTimeout(all, c.plan.TimeoutMax)
	uses := c.useBeside(using, t)
	c.pause(ctx, besideTime)
	c.history.End(c.dropTable(ctx, t))
	cancel()
	moves.Wait()
	if c.r.IntN(2) == 0 {
		c.pause(all, time.Second)
	}
	if c.r.IntN(2) == 0 {
		c.undrop(all, t)
	}
	for !c.createTable(all, t) && all.Err() == nil {
		c.pause(all, time.Second)
	}
	c.pause(using, time.Second)
	stop()
	uses.Wait()
}

// besideTime bounds how long a table is used and its tablets are moved before it is dropped.
const besideTime = 2 * time.Second

// moveBeside moves tablets of a table until the context ends, sometimes: a table may be dropped while servers load its tablets.
func (c *operator) moveBeside(ctx context.Context, t *TablePlan) *sync.WaitGroup {
	var moves sync.WaitGroup
	if !c.plan.Has(Moves) || c.r.IntN(2) == 0 {
		return &moves
	}
	for range 3 {
		other := c.Workload.worker(c.number) // with random numbers of its own
		other.r, other.db = c.fork(), c.db
		moves.Go(func() {
			for ctx.Err() == nil {
				other.operator.move(ctx, t, other.row())
				other.pause(ctx, 200*time.Millisecond)
			}
		})
	}
	return &moves
}

// useBeside reads and writes a table until the context ends, sometimes: no server may acknowledge a write once the table is dropped, nor write
// into it what is meant for the table that is created then.
func (c *operator) useBeside(ctx context.Context, t *TablePlan) *sync.WaitGroup {
	var uses sync.WaitGroup
	if c.r.IntN(2) == 0 {
		return &uses
	}
	for range 3 {
		other := c.Workload.worker(c.number) // with random numbers of its own
		other.r, other.db = c.fork(), c.db
		uses.Go(func() {
			for ctx.Err() == nil {
				if other.r.IntN(3) == 0 {
					other.rows.read(ctx, t, other.row(), false)
				} else {
					other.rows.write(ctx, t, other.row(), other.rows.sets(t, 1))
				}
				other.pause(ctx, 100*time.Millisecond)
			}
		})
	}
	return &uses
}

func (c *operator) dropTable(ctx context.Context, t *TablePlan) (Op, error) {
	kept := c.r.IntN(2) == 0
	op := c.begin(Op{Kind: Drop, Table: t.Name, Kept: kept})
	if kept { // no request may reach its tablets
		return op, c.db.Tables().Drop(ctx, t.Name)
	}
	return op, c.db.Tables().DropNow(ctx, t.Name)
}

// undrop restores the table that was dropped last, or one that was dropped before, if the name has one that is kept. The creation of the table must
// have been acknowledged, so that the judges know which it is.
func (c *operator) undrop(all context.Context, t *TablePlan) {
	ctx, cancel := c.timeout(all)
	defer cancel()
	kept, err := c.db.Tables().Dropped(ctx)
	if err != nil {
		return
	}
	var ids []uint64
	for i := range kept {
		if d := &kept[i]; d.Name == t.Name && c.history.created(d.ID) {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	id := slices.Max(ids)
	if c.r.IntN(4) == 0 {
		id = ids[c.r.IntN(len(ids))]
	}
	op := c.begin(Op{Kind: Undrop, Table: t.Name, TableID: id})
	_, err = c.db.Tables().Undrop(ctx, client.DroppedRef{Name: t.Name, ID: id}, "")
	c.history.End(op, err)
}

// clear deletes all rows of a range, sometimes of the whole table, at once.
func (c *operator) clear(ctx context.Context) {
	t, r := c.table(), Scan{}
	if c.r.IntN(3) > 0 {
		r.Start, r.End = c.row(), c.row()
		if r.Start > r.End {
			r.Start, r.End = r.End, r.Start
		}
	}
	op := c.begin(Op{Kind: Clear, Table: t.Name, Scan: &r})
	c.history.EndPartly(op, c.db.Tables().ClearRows(ctx, t.Name, r.Start, r.End))
}

// alter changes the storage of a family, or drops a family and adds it again.
func (c *operator) alter(ctx context.Context) {
	t := c.table()
	f := t.Families[c.r.IntN(len(t.Families))]
	op := Op{Table: t.Name, Families: []string{f.Name}}
	if (t.Dropped || t.FamilyDropped) && len(t.Families) > 1 && c.r.IntN(3) == 0 {
		f = t.Families[len(t.Families)-1]
		op.Kind, op.Families = DropFamily, []string{f.Name}
		op = c.begin(op)
		c.history.End(op, c.changeFamily(ctx, t, table.Change{Op: table.ChangeDrop, Family: table.FamilySpec{Name: f.Name}}))
		c.pause(ctx, 500*time.Millisecond)
	} else {
		f.Compression = table.Compression(1 + c.r.IntN(4))
		f.BlockBytes = 1 << (10 + c.r.IntN(6))
	}
	op.Kind = SetFamily
	op = c.begin(op)
	c.history.End(op, c.changeFamily(ctx, t, table.Change{Op: table.ChangeSet, Family: f}))
}

// changeFamily sets or drops a family, of every other number of families by alter_table.
func (c *operator) changeFamily(ctx context.Context, t *TablePlan, change table.Change) (err error) {
	switch {
	case len(t.Families)%2 == 0:
		_, err = c.db.Tables().Alter(ctx, t.Name, change)
	case change.Op == table.ChangeDrop:
		_, err = c.db.Tables().DropFamily(ctx, t.Name, change.Family.Name)
	default:
		_, err = c.db.Tables().SetFamily(ctx, t.Name, change.Family)
	}
	return err
}
