package workload

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/client"
)

// doTablets makes one operation of an operator on tablets.
func (c *operator) doTablets(ctx context.Context, f Feature) {
	t, row, tablets := c.table(), c.row(), c.db.Tablets()
	ref := client.TabletRef{Row: row}
	op := Op{Table: t.Name, Row: row}
	switch f {
	case Splits:
		op.Kind = Split
		op = c.begin(op)
		at := row
		if c.r.IntN(4) == 0 {
			at = "" // the largest tablet, at about half of its bytes
		}
		_, err := tablets.Split(ctx, t.Name, at)
		c.history.End(op, err)
	case Merges:
		op.Kind = Merge
		op = c.begin(op)
		_, err := tablets.Merge(ctx, t.Name, ref)
		c.history.End(op, err)
	case Moves:
		c.move(ctx, t, row)
	case Compactions:
		op.Kind = Compact
		op = c.begin(op)
		c.history.End(op, tablets.Compact(ctx, t.Name, ref, c.r.IntN(2) == 0))
	}
}

// move moves the tablet of a row to some node.
func (c *operator) move(ctx context.Context, t *TablePlan, row string) {
	op := c.begin(Op{Kind: Move, Table: t.Name, Row: row, Node: c.node()})
	_, err := c.db.Tablets().Move(ctx, t.Name, client.TabletRef{Row: row}, op.Node)
	c.history.End(op, err)
}

// node returns the name of a node, usually one that is up.
func (c *operator) node() string {
	nodes := c.cluster.Nodes()
	name := nodes[c.r.IntN(len(nodes))]
	for range 3 {
		if c.cluster.Up(name) {
			break
		}
		name = nodes[c.r.IntN(len(nodes))]
	}
	return name
}

// drain drains a node for some seconds. One node at a time is drained.
func (c *operator) drain(all context.Context) {
	if len(c.cluster.Nodes()) < 4 || !c.draining.CompareAndSwap(false, true) {
		return
	}
	defer c.draining.Store(false)
	node := c.node()
	ctx, cancel := c.timeout(all)
	op := c.begin(Op{Kind: Drain, Node: node})
	c.history.End(op, c.db.Nodes().Drain(ctx, node))
	cancel()
	c.pause(all, 20*time.Second)
	for range 10 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(all), farewell)
		op := c.history.End(c.undrain(ctx, node))
		cancel()
		if op.Outcome == OK || all.Err() != nil { // Final tries again
			return
		}
	}
}

func (c *operator) undrain(ctx context.Context, node string) (Op, error) {
	op := c.begin(Op{Kind: Undrain, Node: node})
	err := c.db.Nodes().Undrain(ctx, node)
	if errors.Is(err, client.ErrNodeNotFound) {
		err = nil // an operator has removed it
	}
	return op, err
}

// useQuota limits the operations of a table for some seconds. Its users get errors of the quota.
func (c *operator) useQuota(all context.Context) {
	t := c.table()
	ctx, cancel := c.timeout(all)
	op := c.begin(Op{Kind: SetQuota, Table: t.Name})
	bounds := map[string]int64{}
	kinds := quotaKinds()
	bounds[kinds[c.r.IntN(len(kinds))]] = 1 + c.r.Int64N(50)
	c.history.End(op, c.db.Quotas().Set(ctx, client.QuotaOfTable, t.Name, bounds, time.Second))
	cancel()
	c.pause(all, 5*time.Second)
	for range 5 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(all), farewell)
		op := c.begin(Op{Kind: RemoveQuota, Table: t.Name})
		err := c.db.Quotas().Remove(ctx, client.QuotaOfTable, t.Name)
		op = c.history.End(op, err)
		cancel()
		if op.Outcome == OK || errors.Is(err, client.ErrNoQuota) || errors.Is(err, client.ErrNoTable) || all.Err() != nil {
			return
		}
	}
}
