package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
)

// TestUndrop (I1, TB3): a dropped table comes back with each acknowledged row, although the servers of its tablets died meanwhile with rows in
// memory only. Until then nothing is read from it, and another table of its name is another one.
func TestUndrop(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	c := good(client.Open(ctx, f.addrs[0]+","+f.addrs[1]+","+f.addrs[2], client.Config{RetryTimeMax: 30 * time.Second}))
	defer c.Close()
	spec := good(table.ParseFamilySpec("f"))
	good(c.Tables().CreateSplit(ctx, "t", []string{"row10", "row20"}, spec))
	put := func(name, value string, rows ...int) {
		t.Helper()
		for _, i := range rows {
			if err := c.Table(name).Apply(ctx, client.NewRowMutation(fmt.Sprintf("row%02d", i)).Set("f:q", []byte(value))); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all []int
	for i := range 30 {
		all = append(all, i)
	}
	put("t", "old", all...)
	before := keysOf(ctx, t, c, "t")
	if err := c.Tables().Drop(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	gone := func(when, name string) {
		t.Helper()
		if _, err := c.Table(name).Get(ctx, "row01"); !errors.Is(err, client.ErrNoTable) {
			t.Errorf("%s: a row of table %q is read: %v", when, name, err)
		}
		if err := c.Table(name).Apply(ctx, client.NewRowMutation("row01").Set("f:q", nil)); !errors.Is(err, client.ErrNoTable) {
			t.Errorf("%s: a row of table %q is written: %v", when, name, err)
		}
	}
	gone("dropped", "t")
	kept := good(c.Tables().Dropped(ctx))
	if len(kept) != 1 || kept[0].Name != "t" || kept[0].Tablets != 3 || kept[0].GoneMS <= kept[0].DroppedMS {
		t.Fatalf("dropped tables %+v", kept)
	}
	gone("by its hidden name", fmt.Sprintf("~%d.%d.t", kept[0].ID, kept[0].DroppedMS))
	good(c.Tables().Create(ctx, "t", spec))
	put("t", "new", 1)
	for i := range f.nodes { // the rows are recovered from commit logs, three times
		f.stop(i)
		if got := keysOf(ctx, t, c, "t"); !slices.Equal(got, []string{"row01"}) {
			t.Errorf("the other table has rows %v", got)
		}
		f.start(i)
		f.await(i, "three voters again", votersAlive(3))
		awaitAllLogReplicas(t, f)
	}
	if _, err := c.Tables().Undrop(ctx, client.DroppedRef{Name: "t"}, ""); !errors.Is(err, client.ErrTableExists) {
		t.Errorf("undropped over another table: %v", err)
	}
	s := good(c.Tables().Undrop(ctx, client.DroppedRef{Name: "t"}, "u"))
	if got := keysOf(ctx, t, c, "u"); s.ID != kept[0].ID || !slices.Equal(got, before) {
		t.Errorf("the table is back with rows %v", got)
	}
	if row := good(c.Table("u").Get(ctx, "row01")); string(row.Cells[0].Value) != "old" {
		t.Errorf("row01 has %q", row.Cells[0].Value)
	}
	put("u", "again", 1, 11, 21)
	if err := errors.Join(c.Tables().DropNow(ctx, "t"), c.Tables().Drop(ctx, "u")); err != nil {
		t.Fatal(err)
	}
	good(c.Tables().Undrop(ctx, client.DroppedRef{Name: "u"}, "t"))
	if got := keysOf(ctx, t, c, "t"); !slices.Equal(got, before) {
		t.Errorf("the table is back again with rows %v", got)
	}
}

// placedTablets returns the number of tablets in METADATA, besides its own, which may still be placed at first.
func placedTablets(ctx context.Context, t *testing.T, c *client.Client) (n int) {
	t.Helper()
	s := c.Table("METADATA").Scan(ctx, client.Families("loc"))
	for s.Next() {
		if id, _, err := metadata.ParseKey(s.Row().Key); err != nil {
			t.Fatal(err)
		} else if id != metadata.TableID {
			n++
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPurge: the tablets of a dropped table are removed when it is purged, or when its time is over.
func TestPurge(t *testing.T) {
	t.Parallel()
	f := newBackupClusterOf(t, 1, func(c *node.Config) { c.Tuning.DroppedFor = 3 * time.Second })
	none := placedTablets(f.ctx, t, f.c)
	for _, how := range []string{"purged", "expired"} {
		good(f.c.Tables().Create(f.ctx, "t", good(table.ParseFamilySpec("f"))))
		f.fill("t", 1)
		if err := f.c.Tables().Compact(f.ctx, "t", false); err != nil {
			t.Fatal(err)
		}
		if err := f.c.Tables().Drop(f.ctx, "t"); err != nil {
			t.Fatal(err)
		}
		kept := good(f.c.Tables().Dropped(f.ctx))
		if len(kept) != 1 || kept[0].Bytes == 0 || kept[0].Tablets != 1 {
			t.Fatalf("dropped tables %+v", kept)
		}
		if how == "purged" {
			if err := f.c.Tables().Purge(f.ctx, client.DroppedRef{Name: "t"}); err != nil {
				t.Fatal(err)
			}
		}
		for len(good(f.c.Tables().Dropped(f.ctx))) > 0 || placedTablets(f.ctx, t, f.c) != none {
			if d, _ := f.ctx.Deadline(); time.Until(d) < 10*time.Second {
				t.Fatalf("%s: the table is still there: %v, %d placed, %d before", how, good(f.c.Tables().Dropped(f.ctx)), placedTablets(f.ctx, t, f.c), none)
			}
			time.Sleep(50 * time.Millisecond)
		}
		f.rounds(4)
		f.fsck()
	}
}
