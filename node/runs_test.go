package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/master"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sortedrun"
)

// TestRunsGoWithTheLogs: what a dead node's commit logs were sorted into is removed when no tablet needs it any more, and no
// sweep is waited for.
func TestRunsGoWithTheLogs(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	awaitAllLogReplicas(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := f.client(0)
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	const tables = 6
	for i := range tables {
		name := fmt.Sprintf("t%d", i)
		if _, err := c.Tables().Create(ctx, name, spec); err != nil {
			t.Fatal(err)
		}
		// What the stopped node, and no other, has written is in its log.
		if _, err := c.Tablets().Move(ctx, name, client.TabletRef{Row: "row"}, f.cfgs[2].Name); err != nil {
			t.Fatal(err)
		}
		if err := c.Table(name).Apply(ctx, client.NewRowMutation("row").Set("f:q", []byte("v"))); err != nil {
			t.Fatal(err)
		}
	}
	locks, err := session.NewClient(session.Config{Locator: session.Addresses(f.addrs[:2])})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	f.stop(2)
	seen := map[blobfs.ID]string{} // runs, and where they are named
	for {
		named := seeRuns(ctx, t, locks, seen)
		if len(seen) > 0 && named == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d runs seen, and %d are named still", len(seen), named)
		}
		time.Sleep(2 * time.Millisecond)
	}
	for left := 1; left > 0; time.Sleep(100 * time.Millisecond) {
		left = 0
		sum, _ := fsck(t, c, false)
		for _, b := range sum.Unnamed {
			id, err := blobfs.ParseID(b.ID)
			if err != nil {
				t.Fatal(err)
			}
			if path, is := seen[id]; is {
				left++
				if ctx.Err() != nil {
					t.Fatalf("a run that %s named is there", path)
				}
			}
		}
	}
	for i := range tables {
		if row, err := c.Table(fmt.Sprintf("t%d", i)).Get(ctx, "row"); err != nil || len(row.Cells) != 1 {
			t.Errorf("table %d: %v, %v", i, row, err)
		}
	}
}

// seeRuns adds the runs that are named now, and returns how many these are.
func seeRuns(ctx context.Context, t *testing.T, locks *session.Client, seen map[blobfs.ID]string) (named int) {
	t.Helper()
	files, err := locks.List(ctx, "/recovery")
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return 1 // not known
	}
	for _, x := range files {
		file, err := locks.Get(ctx, x.Path)
		if errors.Is(err, metaapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return 1
		}
		r, err := master.DecodeRecovery(file.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Pieces {
			if p.Run == nil {
				continue
			}
			runs, err := sortedrun.DecodeAll(p.Run)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range runs {
				if m.Entries > 0 {
					named++
					seen[m.Handle.ID] = x.Path
				}
			}
		}
	}
	return named
}
