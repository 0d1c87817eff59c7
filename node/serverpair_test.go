package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/tabletserver"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// TestRootIsNotSplit: METADATA's other tablets split when they are large, the root tablet never does.
func TestRootIsNotSplit(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t", "u", "v"} {
		if _, err := c.Tables().Create(ctx, name, spec); err != nil {
			t.Fatal(err)
		}
	}
	s := n.tabletServer.Current()
	first := tablet.Ref{Table: metadata.TableID}
	split := func(r tablet.Ref) {
		t.Helper()
		s.TrySplit(tablet.SplitCandidate{Ref: r})
	}
	own := func() (ends []string) {
		stats, err := s.Metadata.TabletStats(metadata.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range stats {
			ends = append(ends, string(x.End))
		}
		return ends
	}
	split(first)
	for want := 3; ; {
		if got := len(own()); got > want {
			t.Fatalf("METADATA has %d tablets", got)
		} else if got == want {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("METADATA does not split")
		}
		time.Sleep(10 * time.Millisecond)
	}
	// It has two rows now: those of METADATA's other two.
	if _, _, err := s.Metadata.Split(ctx, tabletserver.RootTablet, nil); !errors.Is(err, tabletserver.ErrRootSplit) {
		t.Errorf("the root tablet is split: %v", err)
	}
	split(tabletserver.RootTablet)
	ends := own()
	if len(ends) != 3 || ends[0] != string(metadata.RootEnd()) {
		t.Errorf("METADATA's tablets end at %q", ends)
	}
	if _, _, err := metadata.ParseKey([]byte(ends[1])); err != nil {
		t.Errorf("METADATA was split at %x, where no tablet has its row: %v", ends[1], err)
	}
	for _, name := range []string{"t", "u", "v"} {
		if err := c.Table(name).Apply(ctx, client.NewRowMutation("row").Set("f:q", []byte("x"))); err != nil {
			t.Errorf("write to %s: %v", name, err)
		}
	}
}

// TestMetadataSplitsWithoutRoot: a split of METADATA that is begun while the root tablet is not served comes about
// when it is, and what is split is read and changed meanwhile.
func TestMetadataSplitsWithoutRoot(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint64
	for _, name := range []string{"t", "u"} {
		schema, err := c.Tables().Create(ctx, name, spec)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, schema.ID)
	}
	s := n.tabletServer.Current()
	n.stopMaster(ctx) // or it would have the root tablet loaded again at once
	for n.candidate.Epoch() != 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	for _, id := range ids { // whose place is known from then on
		if _, err := n.rows.Get(ctx, id, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Metadata.Unload(ctx, tabletserver.RootTablet); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Metadata.Split(ctx, tablet.Ref{Table: metadata.TableID}, nil)
		done <- err
	}()
	for i := range 20 {
		for _, id := range ids {
			row, err := n.rows.Get(ctx, id, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.rows.Replace(ctx, row, "looked at"); err != nil {
				t.Fatalf("change %d: %v", i, err)
			}
		}
	}
	select {
	case err := <-done:
		t.Fatalf("METADATA was split without its root: %v", err)
	default:
	}
	root, err := n.rows.Root(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(ctx, nil, root.Generation); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if own := n.MetadataTablets(); len(own) != 3 {
		t.Errorf("METADATA has %d tablets", len(own))
	}
	for _, id := range ids {
		if _, err := n.rows.Get(ctx, id, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestOwnServerOfMetadata: METADATA's tablets are served, and logged, apart from users', and figures
// are of both.
func TestOwnServerOfMetadata(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	makeTable(ctx, t, c)
	s := n.tabletServer.Current()
	before, users := s.Metadata.Stats(), s.Users.Stats()
	for range 100 {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation("row").Set("f:q", []byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	if m, u := s.Metadata.Stats(), s.Users.Stats(); m.Log.Commits != before.Log.Commits || u.Log.Commits != users.Log.Commits+100 {
		t.Errorf("100 writes are %d commits of users and %d of METADATA", u.Log.Commits-users.Log.Commits, m.Log.Commits-before.Log.Commits)
	}
	for name, want := range map[string]int{metadata.Name: 2, "t": 1} {
		stats, err := n.tabletServer.Of(name).TabletStats(name)
		if err != nil || len(stats) != want {
			t.Errorf("table %s has %d tablets here, want %d, error %v", name, len(stats), want, err)
		}
	}
	logs, err := n.catalog.List(ctx, namespace.LogsDir)
	if err != nil || !slices.Equal(logs, []string{s.Name, namespace.MetadataServer(s.Name)}) {
		t.Errorf("there are logs of %q, error %v", logs, err)
	}
	servers := map[string]bool{}
	if err := n.rows.Scan(ctx, "", "", metadata.Places(), func(r *metadata.Row) { servers[r.Server] = true }); err != nil {
		t.Fatal(err)
	}
	root, err := n.rows.Root(ctx)
	if err != nil || root.Server != namespace.MetadataServer(s.Name) || !servers[s.Name] || !servers[root.Server] || len(servers) != 2 {
		t.Errorf("tablets are on %v, the root tablet on %q, error %v", servers, root.Server, err)
	}
	st, err := c.Status(ctx)
	if err != nil || st.Tablets != 1 || st.Tables != 1 {
		t.Errorf("status tells of %d tablets of %d tables, error %v", st.Tablets, st.Tables, err)
	}
	if sum := n.tabletServer.Stats(); sum.Tablets != 3 || sum.Log.Commits < 100+before.Log.Commits {
		t.Errorf("figures are %+v", sum)
	}
}
