package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/master"
)

// TestLoadOfDroppedTablet: that a table was dropped before the master's order to load its tablet came is no
// failure.
func TestLoadOfDroppedTablet(t *testing.T) {
	n, _ := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := n.masterTablets()
	gone := master.Tablet{Key: string(metadata.Key(nil, 500, []byte("m"))), Generation: 7}
	for ; ; timing.Sleep(ctx, 10*time.Millisecond) { // until METADATA is served
		servers, err := c.Servers(ctx)
		i := slices.IndexFunc(servers, func(v master.TabletServer) bool { return !v.Metadata })
		if err == nil && i >= 0 {
			if _, err = n.rows.Between(ctx, 500, nil, nil); err == nil {
				if err := c.Load(ctx, &servers[i], &gone, n.candidate.Master().Sequencer()); !errors.Is(err, master.ErrOvertaken) {
					t.Errorf("a tablet without a row: %v", err)
				}
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
