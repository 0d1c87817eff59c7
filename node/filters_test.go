package node

import (
	"slices"
	"strconv"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestSamplesAreDrawnAnew: the node that knows a filter from an earlier call draws the
// rows of a sample anew in each call, and once for a whole scan.
func TestSamplesAreDrawnAnew(t *testing.T) {
	t.Parallel()
	_, c := startInternal(t)
	ctx := t.Context()
	makeTable(ctx, t, c)
	tb := c.Table("t")
	const rows = 200
	var all []*client.RowMutation
	for i := range rows {
		all = append(all, client.NewRowMutation(strconv.Itoa(1000+i)).Set("f:q", []byte("v")))
	}
	if err := tb.ApplyAll(ctx, all); err != nil {
		t.Fatal(err)
	}
	half := client.Filter(table.RowSample(0.5))
	var scans [2][]string
	for i := range scans {
		for row, err := range tb.Scan(ctx, half, client.BatchRows(7)).Rows() {
			if err != nil {
				t.Fatal(err)
			}
			scans[i] = append(scans[i], string(row.Key))
		}
	}
	// That 200 decisions agree by chance has a probability of 2^-200.
	if slices.Equal(scans[0], scans[1]) {
		t.Errorf("two scans got the same %d of %d rows", len(scans[0]), rows)
	}
	found := 0
	for range 100 {
		row, err := tb.Get(ctx, "1000", half)
		if err != nil {
			t.Fatal(err)
		}
		if row != nil {
			found++
		}
	}
	if found == 0 || found == 100 {
		t.Errorf("a sample of half the rows let one row through in %d of 100 reads", found)
	}
}
