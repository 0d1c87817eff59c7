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
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/tabletserver"
)

// TestUnservedTablet: the master reports a tablet that no server can load, and why. The attempts do not displace its history or add servers whose logs it needs,
// and it is served once it can be.
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
			row, err := n.rows.Get(ctx, schema.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			do(row)
			if err = n.rows.Replace(ctx, row, ""); err == nil {
				return
			}
			if !errors.Is(err, metarows.ErrChanged) {
				t.Fatal(err)
			}
		}
	}
	// Its row names a dead server whose logs are not sorted.
	s, key := n.tabletServer.Current(), metadata.Key(nil, schema.ID, nil)
	for damaged := false; !damaged; {
		if _, err := s.Unload(ctx, key); err != nil && !errors.Is(err, tabletserver.ErrBusyTablet) {
			t.Fatal(err)
		}
		if !s.Busy.Reserve(key) {
			continue
		}
		if now, err := n.rows.Get(ctx, schema.ID, nil); err != nil {
			t.Fatal(err)
		} else if damaged = now.Server == ""; damaged {
			change(func(r *metadata.Row) { r.Recoveries = []string{"dead.7"} })
		}
		s.Busy.Release(key)
	}
	var reported *client.UnservedTablets
	var err error
	for ; ; timing.Sleep(ctx, 50*time.Millisecond) {
		if reported, err = c.Tablets().Unserved(ctx); err != nil {
			t.Fatal(err)
		}
		if reported.Total > 0 && reported.Tablets[0].Tries >= retriesSeen {
			break
		}
	}
	u := &reported.Tablets[0]
	if reported.Total != 1 || u.Table != "t" || string(u.Start) != "m" || len(u.End) > 0 || u.Since < 5*time.Second || !strings.Contains(u.Error, "find the sorted logs of dead.7") {
		t.Errorf("told of %d: %+v", reported.Total, u)
	}
	var events []string
	row, err := n.client.Table(metadata.Name).Get(ctx, string(key), client.Filter(metadata.RowsWithEvents()))
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
	for free := false; !free; timing.Sleep(ctx, 10*time.Millisecond) { // between two attempts no node has it
		now, err := n.rows.Get(ctx, schema.ID, nil)
		if err != nil {
			t.Fatalf("the tablet stays a server's that cannot load it: %v", err)
		}
		free = now.Server == ""
	}
	change(func(r *metadata.Row) { r.Recoveries = nil })
	if r, err := c.Table("t").Get(ctx, "z"); err != nil || r == nil {
		t.Fatalf("read what the tablet has: %v", err)
	}
	for ; reported.Total > 0; timing.Sleep(ctx, 50*time.Millisecond) {
		if reported, err = c.Tablets().Unserved(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMetadataTabletIsReleased: a server that cannot load a tablet of METADATA that it took releases it, so that the master can give it
// to another server, and it is served again.
func TestMetadataTabletIsReleased(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	makeTable(ctx, t, c)
	s := n.tabletServer.Current()
	for _, end := range [][]byte{nil, metadata.RootEnd()} {
		key := []byte(master.KeyOf(metadata.TableID, end))
		for !s.Busy.Reserve(key) { // the master's orders are refused until end
			timing.Sleep(ctx, time.Millisecond)
		}
		row, err := s.Row(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Metadata.Unload(ctx, metarows.RefOf(row)); err != nil {
			t.Fatal(err)
		}
		s.ReleaseFailed(key, errors.New("the log cannot be created"))
		if row, err = s.Row(ctx, key); err != nil || !row.Unassigned() {
			t.Errorf("the tablet to %q of METADATA stays with %q, which cannot load it: %v", end, row.Server, err)
		}
		s.Busy.Release(key)
		if err := c.Table("t").Apply(ctx, client.NewRowMutation("z").Set("f:q", []byte("v"))); err != nil {
			t.Fatal(err)
		}
		for !s.Has(row) {
			if timing.Sleep(ctx, time.Millisecond); ctx.Err() != nil {
				t.Fatalf("the tablet to %q of METADATA is not served again", end)
			}
		}
	}
}

// TestNotLoadedIsForgotten: that a tablet could not be loaded here is of no account once another server has had it, and
// is not remembered of tablets that are gone.
func TestNotLoadedIsForgotten(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	schema := makeTable(ctx, t, c)
	s, key := n.tabletServer.Current(), metadata.Key(nil, schema.ID, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func() *metadata.Row {
		t.Helper()
		row, err := n.rows.Get(ctx, schema.ID, nil)
		must(err)
		return row
	}
	for !s.Busy.Reserve(key) { // from now on it is not loaded
		timing.Sleep(ctx, time.Millisecond)
	}
	row := read()
	must(s.Users.Unload(ctx, metarows.RefOf(row)))
	fails := func() {
		t.Helper()
		row := read()
		must(s.Take(ctx, row, s.Retried(ctx, key, row)))
		s.ReleaseFailed(key, errors.New("a file is damaged"))
	}
	history := func() (all []string) {
		t.Helper()
		row, err := n.client.Table(metadata.Name).Get(ctx, string(key), client.Filter(metadata.RowsWithEvents()))
		must(err)
		for _, e := range metadata.Events(row) {
			all = append(all, e.Text)
		}
		return all
	}
	fails()
	before := history()
	fails()
	if after := history(); !slices.Equal(before, after) {
		t.Errorf("another try in vain added to the history: %q, then %q", before, after)
	}
	const other = "n9.900"
	row = read()
	if died := (&metadata.Row{Table: row.Table, Server: other}); s.Retried(ctx, key, died) || s.Failures() != 0 {
		t.Error("a tablet that a server had which died is tried again here, says the history")
	}
	fails()
	row = read()
	row.Server = other
	must(n.rows.Replace(ctx, row, "loaded on "+other))
	row.Server = ""
	must(n.rows.Replace(ctx, row, "unloaded by "+other))
	s.Busy.Release(key)
	if _, err := c.Table("t").Get(ctx, "z"); err != nil { // the master has it loaded
		t.Fatal(err)
	}
	if now := history(); now[0] != "loaded on "+s.Name || now[1] != "unloaded by "+other {
		t.Errorf("loaded where it could not be before another server had it: %q", now)
	}
	must(c.Tables().DropNow(ctx, "t"))
	for err := error(nil); !errors.Is(err, metarows.ErrNoRow); timing.Sleep(ctx, 10*time.Millisecond) {
		if _, err = n.rows.Get(ctx, schema.ID, nil); err != nil && !errors.Is(err, metarows.ErrNoRow) {
			t.Fatal(err)
		}
	}
	s.ReleaseFailed(key, errors.New("a file is gone"))
	if n := s.Failures(); n != 0 {
		t.Errorf("%d tablets are remembered, and there are none", n)
	}
}

// retriesSeen is how many tries a test waits for.
const retriesSeen = 4
