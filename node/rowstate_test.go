package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/tablet"
)

// TestDroppedRowsAreForgotten: a tablet server keeps the rows of the tablets that it serves and no row of a dropped table.
func TestDroppedRowsAreForgotten(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	stays := makeTable(ctx, t, c, "m")
	s := n.tabletServer.Current()
	for i := range 5 {
		name := fmt.Sprint("dropped", i)
		if _, err := c.Tables().CreateSplit(ctx, name, []string{"m"}, familyF(t)); err != nil {
			t.Fatal(err)
		}
		if err := c.Tables().DropNow(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	for {
		var users []tablet.Ref
		for _, r := range s.Rows.Tablets() {
			if r.Table >= stays.ID {
				users = append(users, r)
			}
		}
		if len(users) == 2 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("rows are remembered of %v", users)
		}
		timing.Sleep(ctx, 20*time.Millisecond)
	}
	for _, end := range []string{"m", ""} {
		if !slices.Contains(s.Rows.Tablets(), tablet.Ref{Table: stays.ID, End: end}) {
			t.Errorf("the row of the tablet to %q is forgotten", end)
		}
	}
}
