package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/table"
)

// ColumnReader reads which columns of a family a row has. TableColumns is one.
type ColumnReader func(ctx context.Context, row, family string) (qualifiers [][]byte, err error)

// TableColumns reads the columns of a table's rows.
func TableColumns(t *client.Table) ColumnReader {
	return func(ctx context.Context, row, family string) (qualifiers [][]byte, err error) {
		r, err := t.Get(ctx, row, client.Families(family), client.Versions(1), client.Filter(table.StripValue{}))
		if err != nil || r == nil {
			return nil, err
		}
		for i := range r.Cells {
			qualifiers = append(qualifiers, r.Cells[i].Qualifier)
		}
		return qualifiers, nil
	}
}

// deletions adds the deletions of an item to a mutation. That of a family is one of each column that the row has, since it has a time range: what an import
// writes to the row meanwhile is not in that range.
func (w *worker) deletions(ctx context.Context, m *client.RowMutation, item *rowfile.Item) error {
	columns := map[string][][]byte{} // by family
	for i := range item.Deletions {
		d := &item.Deletions[i]
		if most := table.DefaultLimits().Mutations; int64(m.Len()) > most {
			return &table.LimitError{What: "deletions of columns by deletions of families in one row", Limit: most, Got: int64(m.Len())}
		}
		if !d.AllColumns {
			m.Add(table.DeleteColumnRange(d.Family, d.Qualifier, d.Start, d.End))
			continue
		}
		if w.im.Table == nil {
			continue
		}
		qualifiers, known := columns[d.Family]
		if !known {
			var err error
			if qualifiers, err = w.columns(ctx, m.Row(), d.Family); err != nil {
				return err
			}
			columns[d.Family] = qualifiers
		}
		for _, q := range qualifiers {
			m.Add(table.DeleteColumnRange(d.Family, q, d.Start, d.End))
		}
	}
	return nil
}

// columns reads the columns of a family that a row has, and repeats what fails with an error that may pass.
func (w *worker) columns(ctx context.Context, row, family string) ([][]byte, error) {
	pauses := timing.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for began := time.Now(); ; {
		qualifiers, err := w.im.Columns(ctx, row, family)
		if err == nil || !passes(err) {
			return qualifiers, err
		}
		if time.Since(began) > w.im.RetryFor {
			return nil, fmt.Errorf("gave up after %v: %w", w.im.RetryFor, err)
		}
		if pauses.Sleep(ctx); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}
