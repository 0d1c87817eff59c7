package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/client"
)

// tableNames has the tables that have their other name, as far as clients know.
type tableNames struct {
	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		other map[string]bool
	}
}

func (n *tableNames) set(table string, other bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.other == nil {
		n.mu.other = map[string]bool{}
	}
	n.mu.other[table] = other
}

func (n *tableNames) other(table string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.other[table]
}

// under returns the other name of a table if it should be used: mostly if the table has it now.
func (c *worker) under(t *TablePlan) string {
	if t.Renamed && c.names.other(t.Name) != (c.r.IntN(8) == 0) {
		return t.other()
	}
	return ""
}

// on records the call of an operation on a table, by one of its names.
func (c *worker) on(t *TablePlan, op Op) Op {
	op.Table = t.Name
	if !op.Final { // names are restored then
		op.Under = c.under(t)
	}
	return c.begin(op)
}

// in returns the table of an operation, by the name and through the view that the operation uses.
func (c *worker) in(op Op) *client.Table {
	t := c.db.Table(op.name())
	if op.View != "" {
		return t.View(op.View)
	}
	return t
}

// renamedFor bounds how long a table has its other name.
const renamedFor = 10 * time.Second

// rename gives a table its other name for a time. Clients use it by both.
func (c *operator) rename(all context.Context) {
	t := c.table()
	if !t.Renamed {
		return
	}
	c.changeName(all, t, true)
	c.pause(all, renamedFor)
	for all.Err() == nil && c.changeName(all, t, false).Outcome != OK && c.names.other(t.Name) {
		c.pause(all, time.Second)
	}
}

// changeName gives a table its other name, or the one of the plan.
func (c *operator) changeName(all context.Context, t *TablePlan, other bool) Op {
	ctx, cancel := c.timeout(all)
	defer cancel()
	from, to := t.other(), t.Name
	if other {
		from, to = to, from
	}
	op := c.begin(Op{Kind: Rename, Table: t.Name, Under: to})
	_, err := c.db.Tables().Rename(ctx, from, to)
	if op = c.history.End(op, err); op.Outcome == OK {
		c.names.set(t.Name, other)
	}
	return op
}

// restoreNames gives all tables the names of the plan, until the context ends.
func (c *reader) restoreNames(ctx context.Context) {
	for i := range c.plan.Tables {
		t := &c.plan.Tables[i]
		for t.Renamed && ctx.Err() == nil {
			c.operator.changeName(ctx, t, false)
			if _, err := c.db.Tables().Describe(ctx, t.other()); errors.Is(err, client.ErrNoTable) {
				break
			}
			pause(ctx, 500*time.Millisecond)
		}
		c.names.set(t.Name, false)
	}
}
