package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// TestTabletsAskedFor: requests do not split a table into more tablets than the limit, which the error names.
func TestTabletsAskedFor(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	makeTable(ctx, t, c, "d", "h")
	n.tabletAdmin.TabletsMax = 4
	if _, err := c.Tablets().Split(ctx, "t", "m"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Tablets().Split(ctx, "t", "r")
	var over *table.LimitError
	if !errors.As(err, &over) || over.Limit != 4 || over.Got != 5 {
		t.Errorf("split into a fifth tablet: %v", err)
	}
}
