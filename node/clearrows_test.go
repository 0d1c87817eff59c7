package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// keysOf returns the keys of all rows of a table.
func keysOf(ctx context.Context, t *testing.T, c *client.Client, name string) (keys []string) {
	t.Helper()
	s := c.Table(name).Scan(ctx)
	for s.Next() {
		keys = append(keys, string(s.Row().Key))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestClearRows (I1, T13): rows of a range are gone from all tablets when the call returns, although a node dies and tablets split
// meanwhile, and rows that are written later stay. Recoveries from the commit log change neither.
func TestClearRows(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	c := good(client.Open(ctx, f.addrs[0]+","+f.addrs[1]+","+f.addrs[2], client.Config{RetryTimeMax: 30 * time.Second}))
	defer c.Close()
	good(c.Tables().CreateSplit(ctx, "t", []string{"row10", "row20", "row30", "row40", "row50"}, good(table.ParseFamilySpec("f"))))
	want := map[string]bool{}
	put := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			row := fmt.Sprintf("row%02d", i)
			if err := c.Table("t").Apply(ctx, client.NewRowMutation(row).Set("f:q", nil)); err != nil {
				t.Fatal(err)
			}
			want[row] = true
		}
	}
	check := func(when string) {
		t.Helper()
		if got := keysOf(ctx, t, c, "t"); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s: rows %v", when, got)
		}
	}
	put(0, 60)
	for i := range f.nodes {
		var wg sync.WaitGroup
		wg.Go(func() { f.stop(i) })
		wg.Go(func() {
			at := fmt.Sprintf("row%02d", 12+9*i)
			if _, err := c.Tablets().Split(ctx, "t", at); err != nil {
				t.Logf("split at %s: %v", at, err) // its outcome does not matter
			}
		})
		start, end := fmt.Sprintf("row%02d", 3+i), fmt.Sprintf("row%02d", 57-i)
		for {
			err := c.Tables().ClearRows(ctx, "t", start, end)
			if err == nil {
				break
			}
			if t.Logf("clear: %v", err); ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		maps.DeleteFunc(want, func(row string, _ bool) bool { return row >= start && row < end })
		check("after the clear")
		put(10+10*i, 13+10*i)
		check("after writes")
		f.start(i)
		f.await(i, "three voters again", votersAlive(3))
		awaitAllLogReplicas(t, f)
	}
	if err := c.Tables().Compact(ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	check("after major compactions")
	if err := c.Tables().ClearPrefix(ctx, "t", "row1"); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(want, func(row string, _ bool) bool { return row[3] == '1' })
	check("after the clear of a prefix")
	if err := c.Tables().ClearRows(ctx, "t", "", ""); err != nil {
		t.Fatal(err)
	}
	clear(want)
	check("after the clear of all")
}

// A backup has what its table had: what was cleared before stays hidden in the restored table, and what is cleared later does not.
func TestClearedRowsInBackup(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 1)
	f.create("t")
	f.fill("t", 1)
	if err := f.c.Tables().ClearRows(f.ctx, "t", "row010", "row030"); err != nil {
		t.Fatal(err)
	}
	before := keysOf(f.ctx, t, f.c, "t")
	id := good(f.c.Backups().Create(f.ctx, time.Hour, "t"))
	good(f.c.Backups().Wait(f.ctx, id))
	if err := f.c.Tables().ClearRows(f.ctx, "t", "", ""); err != nil {
		t.Fatal(err)
	}
	good(f.c.Backups().Restore(f.ctx, id, "t", "u"))
	if got := keysOf(f.ctx, t, f.c, "u"); len(got) != 40 || !slices.Equal(got, before) {
		t.Errorf("the restored table has %d rows, want %d", len(got), len(before))
	}
	f.fill("u", 2)
	if got := keysOf(f.ctx, t, f.c, "u"); len(got) != 60 {
		t.Errorf("the restored table has %d rows after all were written", len(got))
	}
	if err := f.c.Tables().ClearRows(f.ctx, "METADATA", "", ""); !errors.Is(err, client.ErrSystemTable) {
		t.Errorf("METADATA is cleared: %v", err)
	}
	if err := f.c.Tables().ClearRows(f.ctx, "absent", "", ""); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("an absent table: %v", err)
	}
}
