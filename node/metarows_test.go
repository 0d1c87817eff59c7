package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/tablet"
)

// madeRow makes the row of a tablet that nobody has.
func madeRow(ctx context.Context, t *testing.T, n *Node) *metadata.Row {
	t.Helper()
	m := tablet.Meta{ID: 1000, Table: 500, LastMajor: time.Now()}
	r := &metadata.Row{Table: 500, Generation: metadata.FirstGeneration(1000), Meta: tablet.EncodeMeta(&m)}
	if err := n.rows.create(ctx, r, "made"); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRowsOfTwoChanges: of two who change a row from the same generation one does it, and the other is told
// that he did not, though the row has the generation that he would have given it. A change that is made a
// second time, since nobody knows of the first, is one.
func TestRowsOfTwoChanges(t *testing.T) {
	n, _ := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for { // until METADATA is served
		if _, err := n.rows.between(ctx, 500, nil, nil); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
		pause(ctx, 10*time.Millisecond)
	}
	n.stopMaster(ctx) // which removes rows of what is no table
	r := madeRow(ctx, t, n)
	if err := n.rows.create(ctx, r, "made"); err != nil {
		t.Errorf("made again: %v", err)
	}
	other := *r
	other.Server = "b.2"
	if err := n.rows.create(ctx, &other, "made"); !errors.Is(err, errRowChanged) {
		t.Errorf("made by another: %v", err)
	}
	mine, again := *r, *r
	mine.Server, mine.Recoveries = "a.1", []string{"dead"}
	again.Server, again.Recoveries = mine.Server, slices.Clone(mine.Recoveries)
	if err := n.rows.replace(ctx, &mine, "mine"); err != nil {
		t.Fatal(err)
	}
	if err := n.rows.replace(ctx, &again, "mine"); err != nil || again.Generation != mine.Generation {
		t.Errorf("changed again: generation %d, %v; want %d", again.Generation, err, mine.Generation)
	}
	if err := n.rows.replace(ctx, &other, "other's"); !errors.Is(err, errRowChanged) {
		t.Errorf("changed by another: %v", err)
	}
	if err := n.rows.remove(ctx, &other); !errors.Is(err, errRowChanged) {
		t.Errorf("removed by another: %v", err)
	}
	for range 2 {
		if err := n.rows.remove(ctx, &mine); err != nil {
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
	schema, err := c.CreateTable(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	m := tablet.Meta{ID: 1000, Table: schema.ID, LastMajor: time.Now()}
	row := &metadata.Row{Table: schema.ID, Generation: metadata.FirstGeneration(1000), Meta: tablet.EncodeMeta(&m), Recoveries: []string{"dead.7"}}
	s := n.server.Load()
	if _, err := s.prepare(ctx, row); !errors.Is(err, errNotSorted) {
		t.Fatalf("without them: %v", err)
	}
}
