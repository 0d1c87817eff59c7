package node

import (
	"context"
	"testing"
	"time"

	"github.com/steledb/stele/client"
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
	s := n.server.Load()
	row, err := n.rows.Get(ctx, schema.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); s.state(metarows.RefOf(row)) == nil || !s.has(row); timing.Sleep(ctx, 10*time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the tablet is not loaded")
		}
	}
	st := s.state(metarows.RefOf(row))
	st.mu.Lock()
	begun := *st.row
	lower := *m
	lower.ID, lower.End = m.ID+1000, []byte("m")
	begun.Split = tablet.EncodeMeta(&lower)
	err = n.rows.Replace(ctx, &begun, "")
	st.row = &begun
	st.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("a").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	if err := s.tablets.Compact(ctx, "t", false); err != nil {
		t.Fatal(err)
	}
	if row, err = n.rows.Get(ctx, schema.ID, nil); err != nil || row.Split != nil {
		t.Errorf("METADATA says of a split that was given up %q, %v", row.Split, err)
	}
}
