package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/roots"
	"github.com/steledb/stele/tablet"
)

// madeRow creates the row of an unassigned tablet.
func madeRow(ctx context.Context, t *testing.T, n *Node) *metadata.Row {
	t.Helper()
	m := tablet.Meta{ID: 1000, Table: 500, LastMajor: time.Now()}
	r := &metadata.Row{Table: 500, Generation: metadata.FirstGeneration(1000), Meta: tablet.EncodeMeta(&m)}
	if err := n.rows.Create(ctx, r, "made"); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRowsOfTwoChanges: of two servers that change a row from the same generation, one succeeds, and the other gets an error, although the row has the
// generation that its change would have given it. A repeated change of unknown outcome counts once.
func TestRowsOfTwoChanges(t *testing.T) {
	n, _ := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for { // until METADATA is served
		if _, err := n.rows.Between(ctx, 500, nil, nil); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
		timing.Sleep(ctx, 10*time.Millisecond)
	}
	n.stopMaster(ctx) // which removes rows of what is no table
	r := madeRow(ctx, t, n)
	if err := n.rows.Create(ctx, r, "made"); err != nil {
		t.Errorf("made again: %v", err)
	}
	other := *r
	other.Server = "b.2"
	if err := n.rows.Create(ctx, &other, "made"); !errors.Is(err, metarows.ErrChanged) {
		t.Errorf("made by another: %v", err)
	}
	checkUserPath, again := *r, *r
	checkUserPath.Server, checkUserPath.Recoveries = "a.1", []string{"dead"}
	again.Server, again.Recoveries = checkUserPath.Server, slices.Clone(checkUserPath.Recoveries)
	if err := n.rows.Replace(ctx, &checkUserPath, "mine"); err != nil {
		t.Fatal(err)
	}
	if err := n.rows.Replace(ctx, &again, "mine"); err != nil || again.Generation != checkUserPath.Generation {
		t.Errorf("changed again: generation %d, %v; want %d", again.Generation, err, checkUserPath.Generation)
	}
	if err := n.rows.Replace(ctx, &other, "other's"); !errors.Is(err, metarows.ErrChanged) {
		t.Errorf("changed by another: %v", err)
	}
	if err := n.rows.Remove(ctx, &other); !errors.Is(err, metarows.ErrChanged) {
		t.Errorf("removed by another: %v", err)
	}
	for range 2 {
		if err := n.rows.Remove(ctx, &checkUserPath); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
}

// TestNoLoadWithoutLogs: a tablet is not served while what it has in a dead server's logs cannot be had: it would be
// lost (I1, I6).
func TestNoLoadWithoutLogs(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	schema, err := c.Tables().Create(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	m := tablet.Meta{ID: 1000, Table: schema.ID, LastMajor: time.Now()}
	row := &metadata.Row{Table: schema.ID, Generation: metadata.FirstGeneration(1000), Meta: tablet.EncodeMeta(&m), Recoveries: []string{"dead.7"}}
	s := n.server.Load()
	if _, err := s.prepare(ctx, row); !errors.Is(err, roots.ErrNotSorted) {
		t.Fatalf("without them: %v", err)
	}
}

// TestMetadataIsNotForClients: no client changes METADATA, by whichever method; all may read it.
func TestMetadataIsNotForClients(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Tables().Create(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	meta := c.Table(metadata.Name)
	rows := func() (keys []string) {
		s := meta.Scan(ctx)
		defer s.Close()
		for s.Next() {
			keys = append(keys, string(s.Row().Key))
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		return keys
	}
	for len(rows()) < 2 { // METADATA's own tablet, and the table's
		if ctx.Err() != nil {
			t.Fatal("the table has no row")
		}
		timing.Sleep(ctx, 10*time.Millisecond)
	}
	n.stopMaster(ctx)
	before := rows()
	for _, row := range before {
		m := client.NewRowMutation(row).DeleteRow()
		_, checkErr := meta.CheckAndMutate(ctx, row, nil, m, nil)
		_, modifyErr := meta.Increment(ctx, row, "loc:x", 1)
		var batch *client.BatchError
		if err := meta.ApplyAll(ctx, []*client.RowMutation{m}); !errors.As(err, &batch) {
			t.Fatalf("a batch: %v", err)
		}
		for _, err := range []error{meta.Apply(ctx, m), checkErr, modifyErr, batch.Errs[0]} {
			if !errors.Is(err, client.ErrSystemTable) {
				t.Errorf("row %q: %v", row, err)
			}
		}
	}
	errs := []error{c.Tables().Drop(ctx, metadata.Name)}
	_, err := c.Tables().Create(ctx, metadata.Name)
	errs = append(errs, err)
	for _, err := range errs {
		if err == nil {
			t.Error("METADATA was made or dropped")
		} else {
			t.Log(err)
		}
	}
	if after := rows(); !slices.Equal(before, after) {
		t.Errorf("METADATA has rows %q, had %q", after, before)
	}
}
