package node_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/table/hll"
)

// TestAggregates: many clients add to the same cell without reading it; the sum is exact, and the sketch that of all, also after a restart and in a restored backup.
func TestAggregates(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	sum, most, distinct := table.AggregateSum, table.AggregateMax, table.AggregateHLL
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "s", Aggregate: &sum}, table.FamilySpec{Name: "m", Aggregate: &most}, table.FamilySpec{Name: "p"}, table.FamilySpec{Name: "u", Aggregate: &distinct}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 8, 25
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").AddInt("s:n", 5, 2).AddInt("m:n", 0, int64(w*each+i)).AddInt("u:n", 0, int64(w*each+i)).AddInt("u:n", 0, 0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	var ids hll.Sketch
	for n := range int64(writers * each) {
		ids.Add(n)
		ids.Add(0)
	}
	check := func(name string) {
		t.Helper()
		row, err := c.Table(name).Get(ctx, "r")
		if err != nil || row == nil || len(row.Cells) != 3 {
			t.Fatal(row, err)
		}
		for i, want := range []int64{writers*each - 1, 2 * writers * each} {
			if got := int64(binary.BigEndian.Uint64(row.Cells[i].Value)); got != want {
				t.Errorf("%s: %s is %d, want %d", name, client.ColumnName(&row.Cells[i]), got, want)
			}
		}
		if got, want := row.Cells[2].Value, ids.Append(nil); !bytes.Equal(got, want) || ids.Estimate() != writers*each {
			t.Errorf("%s: sketch %x, want %x, of %d", name, got, want, ids.Estimate())
		}
	}
	check("t")
	for _, m := range []*client.RowMutation{client.NewRowMutation("r").Set("s:n", table.Integer(1)), client.NewRowMutation("r").AddInt("p:n", 0, 1)} {
		if err := c.Table("t").Apply(ctx, m); !errors.Is(err, client.ErrAggregate) {
			t.Errorf("%v", err)
		}
	}
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").Merge("u:n", 0, table.Integer(1))); !errors.Is(err, table.ErrBadOperand) || !strings.Contains(err.Error(), "ZetaSketch") {
		t.Errorf("merge of no sketch: %v", err)
	}
	if _, err := c.Table("t").ReadModifyWrite(ctx, "r", client.IncrementRule("s:n", 1)); !errors.Is(err, client.ErrAggregate) {
		t.Errorf("read-modify-write: %v", err)
	}
	f.stop(0)
	f.start(0)
	c = f.client(0)
	check("t")
	if err := c.Tables().Compact(ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	check("t")
	id, err := c.Backups().Create(ctx, 0, "t")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Backups().Wait(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").DeleteRow()); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Backups().Restore(ctx, id, "t", "u"); err != nil || s.Family("s").Aggregate != sum {
		t.Fatal(s, err)
	}
	check("u")
}
