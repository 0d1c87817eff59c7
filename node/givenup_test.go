package node

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// TestSplitGivenUp: a split that was begun in METADATA and given up does not come about when the tablet is loaded next: what
// was written since would be lost (I1).
func TestSplitGivenUp(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := c.Tables().Create(ctx, "t", spec)
	if err != nil {
		t.Fatal(err)
	}
	n.stopMaster(ctx)
	s := n.tabletServer.Current()
	row, err := n.rows.Get(ctx, schema.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); !slices.Contains(s.Rows.Tablets(), metarows.RefOf(row)) || !s.Has(row); timing.Sleep(ctx, 10*time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the tablet is not loaded")
		}
	}
	lower := *m
	lower.ID, lower.End = m.ID+1000, []byte("m")
	if _, err := s.Rows.Change(ctx, metarows.RefOf(row), "", func(row *metadata.Row) { row.Split = tablet.EncodeMeta(&lower) }); err != nil {
		t.Fatal(err)
	}
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("a").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Users.Compact(ctx, "t", false); err != nil {
		t.Fatal(err)
	}
	if row, err = n.rows.Get(ctx, schema.ID, nil); err != nil || row.Split != nil {
		t.Errorf("METADATA says of a split that was given up %q, %v", row.Split, err)
	}
}
