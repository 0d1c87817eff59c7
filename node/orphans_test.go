package node_test

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node/quota"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// TestTableHalfMade: what is written before a table is taken away if the table does not come to be.
func TestTableHalfMade(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	id := good(admin.Tables().Describe(ctx, "t")).Schema.ID
	breaks := quota.PrincipalFile("admin") // which is read after both files are written
	if err := f.nodes[0].PutFile(ctx, breaks, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Tables().Create(ctx, "u", table.FamilySpec{Name: "f"}); err == nil {
		t.Fatal("the table was made")
	}
	for _, file := range []string{acl.TableFile(id), quota.OwnerFile(id)} {
		if names := good(f.nodes[0].Files(ctx, path.Dir(file))); !slices.Equal(names, []string{path.Base(file)}) {
			t.Errorf("%s has %v, want the table's alone that there is", path.Dir(file), names)
		}
	}
	if err := f.nodes[0].PutFile(ctx, breaks, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Tables().Create(ctx, "u", table.FamilySpec{Name: "f"}); err != nil {
		t.Error(err)
	}
}

// TestLeftoversOfTables: a master that is new takes away what is left over of tables, and nothing of one that is there.
func TestLeftoversOfTables(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	if err := admin.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{"read_ops": 1000}, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first look", f.nodes[0].SweptTables)
	const never = 5000
	id := good(admin.Tables().Describe(ctx, "t")).Schema.ID
	files := []func(uint64) string{acl.TableFile, quota.OwnerFile, quota.TableFile}
	for _, file := range files {
		if err := f.nodes[0].PutFile(ctx, file(never), good(f.nodes[0].File(ctx, file(id)))); err != nil {
			t.Fatal(err)
		}
	}
	f.stop(0)
	f.start(0)
	eventually(t, "the look of another reign", f.nodes[0].SweptTables)
	for _, file := range files {
		if _, err := f.nodes[0].File(ctx, file(never)); !errors.Is(err, metaapi.ErrNotFound) {
			t.Errorf("%s: %v, want that it is gone", file(never), err)
		}
		if _, err := f.nodes[0].File(ctx, file(id)); err != nil {
			t.Errorf("%s of a table that is there: %v", file(id), err)
		}
	}
}

// TestSweepWhileTablesAreMade: files of a table that is being created stay, however often orphans are searched.
func TestSweepWhileTablesAreMade(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	stop := make(chan struct{})
	var sweeps sync.WaitGroup
	for range 2 {
		sweeps.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				if err := f.nodes[0].SweepTables(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var ids []uint64
	for end, i := time.Now().Add(3*time.Second), 0; time.Now().Before(end) && i < 200; i++ {
		ids = append(ids, good(admin.Tables().Create(ctx, fmt.Sprint("t", i), table.FamilySpec{Name: "f"})).ID)
	}
	close(stop)
	t.Logf("%d tables made", len(ids))
	sweeps.Wait()
	for _, file := range []func(uint64) string{acl.TableFile, quota.OwnerFile} {
		names := good(f.nodes[0].Files(ctx, path.Dir(file(0))))
		for _, id := range ids {
			if !slices.Contains(names, strconv.FormatUint(id, 10)) {
				t.Errorf("%s is gone, of %d tables", file(id), len(ids))
			}
		}
	}
}
