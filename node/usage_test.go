package node_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestUsageOfCluster: a table's usage is summed over the nodes that serve it, and any node returns it.
func TestUsageOfCluster(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().CreateSplit(ctx, "t", []string{"a", "b"}, table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	for i, row := range []string{"a", "b", "c"} {
		if _, err := c.Tablets().Move(ctx, "t", client.TabletRef{Row: row}, f.cfgs[i].Name); err != nil {
			t.Fatal(err)
		}
		m := client.NewRowMutation(row).Set("f:q", make([]byte, 1000)).Set("g:q", make([]byte, 3000))
		if err := c.Table("t").Apply(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range f.nodes {
		u := good(f.client(i).Tables().Usage(ctx, "t"))
		if len(u.Tables) != 1 || len(u.Silent) != 0 || u.Tables[0].Tablets != 3 || len(u.Tables[0].Families) != 2 {
			t.Fatalf("by node %d: %+v", i, u)
		}
		all := u.Tables[0]
		if f, g := all.Families[0].MemtableBytes, all.Families[1].MemtableBytes; f < 3*1000 || g < 3*3000 || f+g != all.MemtableBytes {
			t.Errorf("by node %d: in memory %+v", i, all)
		}
	}
	if err := c.Tables().Compact(ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	all := good(c.Tables().Usage(ctx, "")).Tables
	for _, x := range all {
		if x.Unserved != 0 {
			t.Errorf("all is served, and %d tablets of %s are missing", x.Unserved, x.Name)
		}
	}
	last := all[len(all)-1]
	if all[0].Name != "METADATA" || last.Name != "t" || last.Files != 3 || last.MemtableBytes != 0 || last.Families[0].Files != 3 || last.DiskBytes != last.Families[0].DiskBytes+last.Families[1].DiskBytes {
		t.Errorf("compacted: %+v", all)
	}
}

// TestUsageWithoutANode: what a node serves that has died is not left out silently, until others serve it.
func TestUsageWithoutANode(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 120*time.Second)
	masterID := f.master()
	c, dies := f.client(masterID), (masterID+1)%3
	if _, err := c.Tables().CreateSplit(ctx, "t", []string{"a", "b"}, table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	for i, row := range []string{"a", "b", "c"} {
		if _, err := c.Tablets().Move(ctx, "t", client.TabletRef{Row: row}, f.cfgs[i].Name); err != nil {
			t.Fatal(err)
		}
	}
	id := f.nodes[dies].ID()
	stopped := make(chan struct{})
	go func() { // its tablets have others soon
		defer close(stopped)
		_ = f.nodes[dies].Close(ctx)
	}()
	whole, missing := func(u *client.Usage) bool {
		return len(u.Silent) == 0 && len(u.Tables) == 1 && u.Tables[0].Tablets == 3 && u.Tables[0].Unserved == 0
	}, 0
	for gone := false; ; {
		select {
		case <-stopped:
			gone = true
		default:
		}
		u, err := c.Tables().Usage(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		if whole(u) {
			if gone {
				break
			}
			continue
		}
		if len(u.Tables) != 1 || u.Tables[0].Unserved == 0 || u.Tables[0].Tablets > 2 {
			t.Fatalf("not whole, and it does not say so: %+v", u)
		}
		if u.Tables[0].Unserved == 1 && slices.Equal(u.Silent, []string{id}) {
			missing++
		}
	}
	f.stop(dies)
	if missing == 0 {
		t.Errorf("node %s was never told to be missing", id)
	}
}

// TestUsageIsForWhoMayKnow: a table's usage is returned to its administrators, and to readers of the cluster.
func TestUsageIsForWhoMayKnow(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	if _, err := admin.Tables().CreateSplit(ctx, "t", []string{"row5"}, table.FamilySpec{Name: "a"}, table.FamilySpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		m := client.NewRowMutation(fmt.Sprintf("row%d", i)).Set("a:q", make([]byte, 1000)).Set("b:q", make([]byte, 3000))
		if err := admin.Table("t").Apply(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	u := good(admin.Tables().Usage(ctx, "t"))
	if len(u.Tables) != 1 || len(u.Silent) != 0 || u.Tables[0].Tablets != 2 || len(u.Tables[0].Families) != 2 {
		t.Fatalf("%+v", u)
	}
	if a, b := u.Tables[0].Families[0], u.Tables[0].Families[1]; a.MemtableBytes < 10_000 || b.MemtableBytes < 2*a.MemtableBytes || a.MemtableBytes+b.MemtableBytes != u.Tables[0].MemtableBytes {
		t.Errorf("in memory %+v, %+v", a, b)
	}
	if err := admin.Tables().Compact(ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	u = good(admin.Tables().Usage(ctx, ""))
	last := u.Tables[len(u.Tables)-1]
	if u.Tables[0].Name != "METADATA" || last.Name != "t" || last.DiskBytes < 1000 || last.MemtableBytes != 0 || last.Families[1].DiskBytes < 2*last.Families[0].DiskBytes {
		t.Errorf("of all: %+v", u)
	}
	ann := f.clientAs(0, client.Config{Credential: f.user(admin, "ann")})
	if _, err := ann.Tables().Usage(ctx, ""); !errors.Is(err, client.ErrPermission) {
		t.Errorf("all tables, by one without rights: %v", err)
	}
	if _, err := ann.Tables().Usage(ctx, "t"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("a table, by one who does not see it: %v", err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Tables().Usage(ctx, "t"); !errors.Is(err, client.ErrPermission) {
		t.Errorf("by a reader: %v", err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "admin"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Tables().Usage(ctx, "t"); err != nil {
		t.Errorf("by an administrator of the table: %v", err)
	}
	if _, err := admin.Tables().Usage(ctx, "none"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("of no table: %v", err)
	}
}
