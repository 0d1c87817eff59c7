package node

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
)

// TestOwnServerOfMetadata: METADATA's tablets are served, and logged, apart from users', and figures
// are of both.
func TestOwnServerOfMetadata(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateTable(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	s := n.server.Load()
	before, users := s.metadata.Stats(), s.tablets.Stats()
	for range 100 {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation("row").Set("f:q", []byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	if m, u := s.metadata.Stats(), s.tablets.Stats(); m.Log.Commits != before.Log.Commits || u.Log.Commits != users.Log.Commits+100 {
		t.Errorf("100 writes are %d commits of users and %d of METADATA", u.Log.Commits-users.Log.Commits, m.Log.Commits-before.Log.Commits)
	}
	for name, want := range map[string]int{metadata.Name: 2, "t": 1} {
		stats, err := n.tabletsOf(name).TabletStats(name)
		if err != nil || len(stats) != want {
			t.Errorf("table %s has %d tablets here, want %d, error %v", name, len(stats), want, err)
		}
	}
	logs, err := n.catalog.list(ctx, logsDir)
	if err != nil || !slices.Equal(logs, []string{s.name, metadataServerName(s.name)}) {
		t.Errorf("there are logs of %q, error %v", logs, err)
	}
	servers := map[string]bool{}
	if err := n.rows.scan(ctx, "", "", metadata.Places(), func(r *metadata.Row) { servers[r.Server] = true }); err != nil {
		t.Fatal(err)
	}
	root, err := n.rows.root(ctx)
	if err != nil || root.Server != metadataServerName(s.name) || !servers[s.name] || !servers[root.Server] || len(servers) != 2 {
		t.Errorf("tablets are on %v, the root tablet on %q, error %v", servers, root.Server, err)
	}
	st, err := c.Status(ctx)
	if err != nil || st.Tablets != 1 || st.Tables != 1 {
		t.Errorf("status tells of %d tablets of %d tables, error %v", st.Tablets, st.Tables, err)
	}
	if sum := n.tabletStats(); sum.Tablets != 3 || sum.Log.Commits < 100+before.Log.Commits {
		t.Errorf("figures are %+v", sum)
	}
	if got := n.client.MetadataNodes(); !slices.Equal(got, []string{n.id()}) {
		t.Errorf("METADATA is known to be on %q", got)
	}
}
