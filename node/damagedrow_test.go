package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/metarows"
)

// TestDamagedRowOfOneTablet: a row of METADATA that cannot be read is reported, and other tablets are made, found and served.
func TestDamagedRowOfOneTablet(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	schema := makeTable(ctx, t, c, "m")
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("z").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	for { // as an earlier version left it
		row, err := n.rows.Get(ctx, schema.ID, []byte("m"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1001 {
			row.Recoveries = append(row.Recoveries, fmt.Sprint("dead.", i))
		}
		if err = n.rows.Replace(ctx, row, ""); err == nil {
			break
		}
		if !errors.Is(err, metarows.ErrChanged) {
			t.Fatal(err)
		}
	}
	if _, err := n.rows.Get(ctx, schema.ID, []byte("m")); err == nil {
		t.Fatal("the row can be read")
	}
	other, err := c.Tables().Create(ctx, "other", familyF(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t", "other"} {
		if err := c.Table(name).Apply(ctx, client.NewRowMutation("z").Set("f:q", []byte("v"))); err != nil {
			t.Errorf("write to %s: %v", name, err)
		}
	}
	if err := c.Tablets().Compact(ctx, "other", client.TabletRef{Row: "z"}, false); err != nil {
		t.Errorf("find the tablet of table %d: %v", other.ID, err)
	}
	for {
		reported, err := c.Tablets().Unserved(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if reported.Total == 1 && string(reported.Tablets[0].End) == "m" && strings.Contains(reported.Tablets[0].Error, "log:recoveries") {
			break
		}
		if timing.Sleep(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("reported: %+v", reported)
		}
	}
	row := metadata.Row{Table: schema.ID, End: []byte("m"), Server: "gone.1"}
	for i := range metadata.RecoveriesMax {
		row.Recoveries = append(row.Recoveries, fmt.Sprint("dead.", i))
	}
	if err := n.server.Load().take(ctx, &row, true); err == nil || !strings.Contains(err.Error(), "limit is 500") {
		t.Errorf("take a tablet with %d recoveries: %v", len(row.Recoveries), err)
	}
}
