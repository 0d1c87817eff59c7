package node_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestRename (TB4, I1, I15): a table that is renamed again and again under load keeps each acknowledged row and its quota, although nodes, masters among
// them, stop meanwhile. After a rename nothing is read or written by the old name, also by clients that have cached where its rows are.
func TestRename(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx := within(t, 4*time.Minute)
	c := good(client.Open(ctx, f.addrs[0]+","+f.addrs[1]+","+f.addrs[2], client.Config{RetryTimeMax: 30 * time.Second}))
	defer c.Close()
	spec := good(table.ParseFamilySpec("f"))
	s := good(c.Tables().CreateSplit(ctx, "t0", []string{"row-1", "row-2"}, spec))
	put := func(name, row string) error {
		return c.Table(name).Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte(row)))
	}

	// Writers know the present name only from refusals.
	var present atomic.Int64 // the table's name is this one, or the next
	stop := make(chan struct{})
	var writers sync.WaitGroup
	acked := make([][]string, 3)
	for w := range acked {
		writers.Go(func() {
			for i, name := 0, int64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				row := fmt.Sprintf("row-%d-%05d", w, i)
				err := put(fmt.Sprintf("t%d", name), row)
				for tries := 0; errors.Is(err, client.ErrNoTable); tries++ {
					if name = present.Load() + int64(tries%2); ctx.Err() != nil {
						t.Errorf("writer %d finds the table by no name", w)
						return
					}
					err = put(fmt.Sprintf("t%d", name), row)
				}
				if err != nil {
					t.Errorf("write %s: %v", row, err)
					return
				}
				acked[w] = append(acked[w], row)
			}
		})
	}
	for i := range 9 {
		from, to := fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i+1)
		if i%3 == 1 { // a master that dies before, or while it renames
			f.stop(f.master())
		}
		now, err := c.Tables().Rename(ctx, from, to)
		if errors.Is(err, client.ErrNoTable) { // the first attempt was made, and its answer lost
			now, err = good(c.Tables().Describe(ctx, to)).Schema, nil
		}
		if err != nil || now.ID != s.ID || now.Name != to {
			t.Fatalf("rename %s: %+v, %v", from, now, err)
		}
		if err := put(from, "late"); !errors.Is(err, client.ErrNoTable) {
			t.Errorf("%s is written after it was renamed: %v", from, err)
		}
		if _, err := c.Table(from).Get(ctx, "row-1"); !errors.Is(err, client.ErrNoTable) {
			t.Errorf("%s is read after it was renamed: %v", from, err)
		}
		if err := put(to, fmt.Sprintf("row-0-%s", to)); err != nil {
			t.Errorf("%s is not written: %v", to, err)
		}
		present.Store(int64(i + 1))
		for j := range f.nodes {
			if f.nodes[j] == nil {
				f.start(j)
				f.await(j, "three voters again", votersAlive(3))
				awaitAllLogReplicas(t, f)
			}
		}
	}
	close(stop)
	writers.Wait()
	rows := keysOf(ctx, t, c, "t9")
	for w := range acked {
		for _, row := range acked[w] {
			if _, found := slices.BinarySearch(rows, row); !found {
				t.Fatalf("acknowledged row %s is lost", row)
			}
		}
	}
	if len(acked[0]) == 0 || slices.Contains(rows, "late") {
		t.Errorf("%d rows were written, late among them: %v", len(acked[0]), slices.Contains(rows, "late"))
	}

	// Another table has the old name; a client that has cached the first one finds it.
	good(c.Tables().Create(ctx, "t8", spec))
	if row, err := c.Table("t8").Get(ctx, "row-0-00000"); err != nil || row != nil && len(row.Cells) > 0 {
		t.Errorf("the other table has row %+v, %v", row, err)
	}
	if _, err := c.Tables().Rename(ctx, "t9", "t8"); !errors.Is(err, client.ErrTableExists) {
		t.Errorf("renamed over another table: %v", err)
	}
	for _, x := range [][2]string{{"absent", "x"}, {"METADATA", "x"}, {"t9", "METADATA"}, {"t9", "~x"}, {"t9", "t9"}, {"t9", "a/b"}, {"t9", ""}} {
		if _, err := c.Tables().Rename(ctx, x[0], x[1]); err == nil {
			t.Errorf("renamed %q to %q", x[0], x[1])
		}
	}
}

// TestRenamedQuota: the quota of a table is in force by its new name when the rename returns, and is listed and removed by it.
func TestRenamedQuota(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	c := f.client(0)
	good(c.Tables().Create(ctx, "t", good(table.ParseFamilySpec("f"))))
	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaWriteOps: 1}, time.Second); err != nil {
		t.Fatal(err)
	}
	quick := f.impatient(0)
	put := func(name string) error {
		return quick.Table(name).Apply(ctx, client.NewRowMutation("r").Set("f:q", nil))
	}
	awaitQuota(t, func() error { return put("t") })
	good(c.Tables().Rename(ctx, "t", "u"))
	if used := awaitQuota(t, func() error { return put("u") }); used.Quota != `table "u" write_ops` {
		t.Errorf("refused with %+v", used)
	}
	if all := good(c.Quotas().List(ctx)); len(all) != 1 || all[0].Name != "u" {
		t.Errorf("quotas %+v", all)
	}
	if err := c.Quotas().Remove(ctx, client.QuotaOfTable, "u"); err != nil {
		t.Error(err)
	}
	if all := good(c.Quotas().List(ctx)); len(all) != 0 {
		t.Errorf("after the removal: %+v", all)
	}
}
