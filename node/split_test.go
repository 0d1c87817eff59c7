package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// The server that loads the tablets next finds a split in METADATA, including the row of the upper half that still describes the undivided tablet; likewise a
// merge.
func TestMetadataKeepsSplits(t *testing.T) {
	t.Parallel()
	ctx, dir := context.Background(), t.TempDir()
	open := func() (*Node, *client.Client, func()) {
		n, err := Start(ctx, Config{DataDirs: []string{dir}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return n, c, func() {
			c.Close()
			short, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			if err := n.Close(short); err != nil {
				t.Error(err)
			}
		}
	}
	n, c, closeAll := open()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := c.Tables().Create(ctx, "t", spec)
	if err != nil {
		t.Fatal(err)
	}
	row := func(i int) string { return fmt.Sprintf("row%02d", i) }
	for i := range 40 {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation(row(i)).Set("f:q", []byte(row(i)))); err != nil {
			t.Fatal(err)
		}
	}
	for round, tablets := range []int{3, 2} {
		upper := tablet.Ref{Table: schema.ID}
		if round == 0 {
			for _, at := range []string{row(9), row(29)} {
				if _, _, err := n.tabletServer.Users().Split(ctx, upper, []byte(at)); err != nil {
					t.Fatal(err)
				}
			}
		} else if err := n.tabletServer.Users().Merge(ctx, tablet.Ref{Table: schema.ID, End: row(9)}, tablet.Ref{Table: schema.ID, End: row(29)}); err != nil {
			t.Fatal(err)
		}
		closeAll()
		n, c, closeAll = open()
		for i := range 40 {
			r, err := c.Table("t").Get(ctx, row(i))
			if err != nil || len(r.Cells) != 1 || string(r.Cells[0].Value) != row(i) {
				t.Fatalf("row %s: %+v, %v", row(i), r, err)
			}
		}
		if stats, err := n.tabletServer.Users().TabletStats("t"); err != nil || len(stats) != tablets {
			t.Fatalf("%d tablets, want %d, error %v", len(stats), tablets, err)
		}
	}
	closeAll()
}
