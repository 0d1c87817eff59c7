package node_test

import (
	"errors"
	"fmt"
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
	if len(k.Hot) == 0 || string(k.Hot[0].Row) != "row4" {
		t.Errorf("hot: %+v", k.Hot)
	}
}

// TestKeyHeatRights: the heat of a table has row keys, and is for users that may read all of it.
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
	if err := get("METADATA"); !errors.Is(err, client.ErrPermission) {
		t.Errorf("of METADATA, by a reader of a table: %v", err)
	}
	if _, err := admin.Tables().KeyHeat(ctx, &client.KeyHeatRequest{Table: "METADATA", Since: time.Hour}); err != nil {
		t.Errorf("of METADATA: %v", err)
	}
}
