package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
)

// TestUnservedTablet: a tablet that no server can load is told by the master with what keeps it from that; the tries
// push nothing out of its history and have it need no more servers' logs; and it is served when it can be.
func TestUnservedTablet(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	schema := makeTable(ctx, t, c, "m")
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("z").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	change := func(do func(r *metadata.Row)) {
		t.Helper()
		for {
			row, err := n.rows.get(ctx, schema.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			do(row)
			if err = n.rows.replace(ctx, row, ""); err == nil {
				return
			}
			if !errors.Is(err, errRowChanged) {
				t.Fatal(err)
			}
		}
	}
	// What its row says of a split that was begun cannot be read.
	s, key := n.server.Load(), metadata.Key(nil, schema.ID, nil)
	for damaged := false; !damaged; {
		if _, err := s.unload(ctx, key); err != nil && !errors.Is(err, errBusyTablet) {
			t.Fatal(err)
		}
		if !s.begin(key) {
			continue
		}
		if now, err := n.rows.get(ctx, schema.ID, nil); err != nil {
			t.Fatal(err)
		} else if damaged = now.Server == ""; damaged {
			change(func(r *metadata.Row) { r.Split = []byte("damaged") })
		}
		s.end(key)
	}
	var told *client.UnservedTablets
	var err error
	for ; ; pause(ctx, 50*time.Millisecond) {
		if told, err = c.UnservedTablets(ctx); err != nil {
			t.Fatal(err)
		}
		if told.Total > 0 && told.Tablets[0].Tries >= retriesSeen {
			break
		}
	}
	u := &told.Tablets[0]
	if told.Total != 1 || u.Table != "t" || string(u.Start) != "m" || len(u.End) > 0 || u.Since < 5*time.Second || !strings.Contains(u.Error, "finish its split") {
		t.Errorf("told of %d: %+v", told.Total, u)
	}
	var events []string
	row, err := n.rows.rows.Get(ctx, string(key), client.Filter(metadata.RowsWithEvents()))
	if err != nil || row == nil {
		t.Fatal(row, err)
	}
	for _, cell := range row.Cells {
		if cell.Family == "event" {
			events = append(events, string(cell.Value))
		}
	}
	failed := slices.IndexFunc(events, func(e string) bool { return strings.HasPrefix(e, "not loaded by ") })
	if failed < 0 || len(events) > 6 || events[len(events)-1] != "created" {
		t.Errorf("the history after %d tries: %q", u.Tries, events)
	}
	for free := false; !free; pause(ctx, 10*time.Millisecond) { // between two tries it is nobody's
		now, err := n.rows.get(ctx, schema.ID, nil)
		if err != nil {
			t.Fatalf("the tablet stays a server's that cannot load it: %v", err)
		}
		free = now.Server == ""
	}
	change(func(r *metadata.Row) { r.Split = nil })
	if r, err := c.Table("t").Get(ctx, "z"); err != nil || r == nil {
		t.Fatalf("read what the tablet has: %v", err)
	}
	for ; told.Total > 0; pause(ctx, 50*time.Millisecond) {
		if told, err = c.UnservedTablets(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// retriesSeen is how many tries a test waits for.
const retriesSeen = 4
