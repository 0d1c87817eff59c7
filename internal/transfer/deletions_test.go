package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/table"
)

// deleting is a file of one record, which deletes a family's cells before a time.
type deleting struct {
	rowfile.Source
	read bool
}

func (s *deleting) Next(item *rowfile.Item) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	*item = rowfile.Item{Line: 1, Record: true, Deletions: []rowfile.Deletion{{Family: "f", AllColumns: true, End: table.Before(7000)}}}
	return nil
}

func (s *deleting) Decode(_ *rowfile.Item, _ *rowfile.Parser, row *table.Row) error {
	row.Key, row.Cells = []byte("r"), nil
	return nil
}

// TestImportDeletesFamilies: what a family's deletion reads is repeated while that may help, and only the columns that the row has are deleted.
func TestImportDeletesFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			fails   int
			err     error // of the first reads
			columns string
			applied int
			want    error
		}{
			{0, nil, "a b", 1, nil},
			{3, client.ErrUnavailable, "a b", 1, nil},
			{0, nil, "", 0, nil},
			{1 << 20, client.ErrUnavailable, "a", 0, client.ErrUnavailable},
			{1, client.ErrPermission, "a", 0, client.ErrPermission},
			{1, table.ErrBadRowKey, "a", 0, table.ErrBadRowKey}, // the row is rejected
		} {
			reads := 0
			f := &fake{rows: map[string]int{}, fail: func(*fake, string) error { return nil }}
			p, err := run(t, f, "", func(cfg *ImportConfig) {
				cfg.Source = &deleting{}
				cfg.Columns = func(_ context.Context, row, family string) (qualifiers [][]byte, err error) {
					if row != "r" || family != "f" {
						t.Errorf("columns of %s in %s", row, family)
					}
					if reads++; reads <= c.fails {
						return nil, c.err
					}
					return bytes.Fields([]byte(c.columns)), nil
				}
			})
			if !errors.Is(err, c.want) || len(f.rows) != c.applied || err == nil && p.Rows.Load() != 1 {
				t.Errorf("%d failures with %v, columns %q: %d rows, %d counted, %v; want %d, %v", c.fails, c.err, strings.Fields(c.columns), len(f.rows), p.Rows.Load(), err, c.applied, c.want)
			}
		}
	})
}
