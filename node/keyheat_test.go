package node_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// heatOf returns the sum of the operations of a table, as a client receives it.
func heatOf(t *testing.T, c *client.Client, r client.KeyHeatRequest) (k *client.KeyHeat, reads, writes int64) {
	t.Helper()
	k, err := c.Tables().KeyHeat(t.Context(), &r)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range k.Hottest(api.KeyHeatRowsMax) {
		reads, writes = reads+h.Reads, writes+h.Writes
	}
	return k, reads, writes
}

// TestKeyHeat (KH1): the heat of a table has each operation on its rows once, on whichever node they are, across a split and a restart.
func TestKeyHeat(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().CreateSplit(ctx, "t", []string{"row3", "row6"}, table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	write := func() {
		for i := range 100 {
			m := client.NewRowMutation(fmt.Sprintf("row%d", i%10)).Set("f:q", []byte("value"))
			if err := c.Table("t").Apply(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	write()
	if _, err := c.Tablets().Split(ctx, "t", "row8"); err != nil {
		t.Fatal(err)
	}
	write()
	for range 50 {
		if _, err := c.Table("t").Get(ctx, "row4"); err != nil {
			t.Fatal(err)
		}
	}
	k, reads, writes := heatOf(t, f.client(1), client.KeyHeatRequest{Table: "t"})
	if reads != 50 || writes != 200 || len(k.Silent) != 0 {
		t.Errorf("%d reads and %d writes, silent %q", reads, writes, k.Silent)
	}
	var readTime, writeTime int64
	for _, h := range k.Hottest(api.KeyHeatRowsMax) {
		readTime, writeTime = readTime+h.ReadMicros, writeTime+h.WriteMicros
		if (h.ReadMicros > 0) != (h.Reads > 0) || (h.WriteMicros > 0) != (h.Writes > 0) {
			t.Errorf("%+v", h)
		}
	}
	if took := time.Since(began).Microseconds(); readTime < 50 || writeTime < 200 || readTime+writeTime > took {
		t.Errorf("%d µs of reads and %d µs of writes in %d µs", readTime, writeTime, took)
	}
	if _, reads, writes := heatOf(t, f.client(1), client.KeyHeatRequest{Table: "t", Start: []byte("row3"), End: []byte("row5")}); reads != 50 || writes != 40 {
		t.Errorf("above row3 and up to row5: %d reads and %d writes", reads, writes)
	}
	if len(k.Hot) == 0 || string(k.Hot[0].Row) != "row4" {
		t.Errorf("hot: %+v", k.Hot)
	}
}

// TestKeyHeatRights (KH4): the heat of a table has row keys, and is for users that may read all of it. The users of hot rows are for readers of the cluster.
func TestKeyHeatRights(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "a"}, table.FamilySpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	ann := f.clientAs(0, client.Config{Credential: f.user(admin, "ann")})
	get := func(name string) error {
		_, err := ann.Tables().KeyHeat(ctx, &client.KeyHeatRequest{Table: name})
		return err
	}
	if err := get("t"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("of a table that is invisible: %v", err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: "a", Rights: "read,write"}); err != nil {
		t.Fatal(err)
	}
	if err := get("t"); !errors.Is(err, client.ErrPermission) {
		t.Errorf("with a right on a family: %v", err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	if err := get("t"); err != nil {
		t.Errorf("by a reader of the table: %v", err)
	}
	if _, err := admin.Table("t").Get(ctx, "none"); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := ann.Table("t").Apply(ctx, client.NewRowMutation("hot").Set("a:q", []byte("v"))); err != nil {
			t.Fatal(err)
		}
	}
	users := func(c *client.Client) []client.HotUser {
		k, err := c.Tables().KeyHeat(ctx, &client.KeyHeatRequest{Table: "t"})
		if err != nil || len(k.Hot) != 1 || k.Hot[0].Writes != 50 {
			t.Fatalf("%+v, %v", k, err)
		}
		return k.Hot[0].Users
	}
	if got := users(admin); len(got) != 1 || got[0] != (client.HotUser{Name: "ann", Ops: 50}) {
		t.Errorf("the users of a hot row: %+v", got)
	}
	if got := users(ann); len(got) != 0 {
		t.Errorf("a reader of the table sees the users of a hot row: %+v", got)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Rights: "monitor"}); err != nil {
		t.Fatal(err)
	}
	if got := users(ann); len(got) != 0 {
		t.Errorf("with monitor: %+v", got)
	}
	bob := f.clientAs(0, client.Config{Credential: f.user(admin, "bob")})
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "bob", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	if got := users(bob); len(got) != 1 {
		t.Errorf("a reader of the cluster sees %+v", got)
	}
	if err := get("METADATA"); !errors.Is(err, client.ErrPermission) {
		t.Errorf("of METADATA, by a reader of a table: %v", err)
	}
	if _, err := admin.Tables().KeyHeat(ctx, &client.KeyHeatRequest{Table: "METADATA", Since: time.Hour}); err != nil {
		t.Errorf("of METADATA: %v", err)
	}
}

// TestHotTablets: the hottest tablets come first, on whichever node they are, with the operations before a split and a move. Of a table of which the
// caller may not read all, nothing is returned.
func TestHotTablets(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 3)
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = 3, f.addrs[:2]
	}
	f.startAll()
	ctx := within(t, 120*time.Second)
	admin := f.client(0)
	for _, name := range []string{"t", "u", "idle"} {
		if _, err := admin.Tables().CreateSplit(ctx, name, []string{"row5"}, table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, row string, n int) {
		for range n {
			if err := admin.Table(name).Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte("value"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("t", "row2", 60)
	write("t", "row4", 30)
	write("t", "row7", 20)
	write("u", "row9", 40)
	if _, err := admin.Tablets().Split(ctx, "t", "row2"); err != nil {
		t.Fatal(err)
	}
	hot := func(c *client.Client, r client.HotTabletsRequest) (ops []int64, l *client.HotTabletList) {
		t.Helper()
		l, err := c.Tables().Hot(ctx, &r)
		if err != nil || len(l.Silent) > 0 {
			t.Fatal(l, err)
		}
		for _, h := range l.Tablets {
			if ops = append(ops, h.Writes); h.Reads != 0 || h.Node == "" || h.Table == "idle" {
				t.Errorf("%+v", h)
			}
		}
		return ops, l
	}
	for i := range f.nodes { // each knows all nodes soon after the start
		for _, l := hot(f.client(i), client.HotTabletsRequest{}); l.Ops < 150; _, l = hot(f.client(i), client.HotTabletsRequest{}) {
			time.Sleep(50 * time.Millisecond)
		}
	}
	ops, l := hot(admin, client.HotTabletsRequest{})
	if !slices.Equal(ops, []int64{60, 40, 30, 20}) || l.Ops != 150 || string(l.Tablets[0].End) != "row2" || l.Tablets[1].Table != "u" || string(l.Tablets[2].Start) != "row2" {
		t.Errorf("%v of %d: %+v", ops, l.Ops, l.Tablets)
	}
	if ops, _ := hot(f.client(1), client.HotTabletsRequest{Most: 2}); !slices.Equal(ops, []int64{60, 40}) {
		t.Errorf("the first two: %v", ops)
	}
	all := l
	ann := f.clientAs(2, client.Config{Credential: f.user(admin, "ann")})
	for _, test := range []struct {
		grant client.Grant
		want  []int64
	}{
		{client.Grant{Table: "idle", Rights: "admin"}, nil}, {client.Grant{Table: "t", Family: "f", Rights: "read"}, nil}, {client.Grant{Table: "u", Rights: "read"}, []int64{40}},
		{client.Grant{Rights: "monitor"}, []int64{40}}, {client.Grant{Rights: "read"}, []int64{60, 40, 30, 20}},
	} {
		test.grant.Principal = "ann"
		if err := admin.Grants().Add(ctx, test.grant); err != nil {
			t.Fatal(err)
		}
		if ops, l := hot(ann, client.HotTabletsRequest{}); !slices.Equal(ops, test.want) || len(ops) == 0 && l.Ops != 0 || len(ops) == 1 && l.Ops != 40 {
			t.Errorf("with %+v: %v of %d", test.grant, ops, l.Ops)
		}
		for i := range all.Tablets { // of a table that is not counted, that there are no operations is unknown
			table := &all.Tablets[i]
			counted := slices.ContainsFunc(l.Tablets, func(t client.HotTablet) bool { return t.TableID == table.TableID })
			if l.HasAll(table.TableID) != counted {
				t.Errorf("with %+v: table %s is counted: %v", test.grant, table.Table, !counted)
			}
		}
	}
}
