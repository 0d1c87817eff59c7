package node

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
)

// TestLongestRows: rows with keys of the greatest length are found. A tablet's end is at most as long as METADATA allows, and it continues to be served
// after a split at a longer row was refused.
func TestLongestRows(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	makeTable(ctx, t, c)
	tb := c.Table("t")
	most := int(n.limits.RowKeyBytes)
	end := int(metadata.EndMax)
	rows := []string{"a", "z"}
	for _, size := range []int{end - 1, end, end + 1, end + 2, most - 1, most} {
		rows = append(rows, strings.Repeat("x", size))
	}
	for _, row := range rows {
		if err := tb.Apply(ctx, client.NewRowMutation(row).Set("f:q", []byte("v"))); err != nil {
			t.Fatalf("write a row of %d bytes: %v", len(row), err)
		}
	}
	for _, size := range []int{end + 1, most} {
		if _, err := c.Tablets().Split(ctx, "t", strings.Repeat("x", size)); !errors.Is(err, table.ErrLimit) {
			t.Errorf("split at %d bytes: %v", size, err)
		}
	}
	if _, err := c.Tablets().Split(ctx, "t", strings.Repeat("x", end)); err != nil {
		t.Errorf("split at %d bytes: %v", end, err)
	}
	for _, row := range rows {
		if r, err := tb.Get(ctx, row); err != nil || r == nil {
			t.Errorf("read a row of %d bytes: %v", len(row), err)
		}
	}
	slices.Sort(rows)
	s := tb.Scan(ctx)
	defer s.Close()
	for i := 0; s.Next(); i++ {
		if i >= len(rows) || !bytes.Equal(s.Row().Key, []byte(rows[i])) {
			t.Fatalf("row %d of the scan has %d bytes", i, len(s.Row().Key))
		}
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}
