package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/testseed"
)

// bulkFake is a table whose tablets have the rows with the same first character.
type bulkFake struct {
	fake
	parts  int
	refuse func(f *bulkFake, rows []*client.RowMutation) error
}

func (f *bulkFake) BulkSpan(_ context.Context, rows []*client.RowMutation) (n int, bytes int64, err error) {
	for n < len(rows) && rows[n].Row()[0] == rows[0].Row()[0] {
		n, bytes = n+1, bytes+rows[n].Size()
	}
	return n, bytes, nil
}

func (f *bulkFake) BulkWrite(_ context.Context, rows []*client.RowMutation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(rows); i++ {
		if rows[i].Row() <= rows[i-1].Row() {
			return client.ErrBulkOrder
		}
	}
	if err := f.refuse(f, rows); err != nil {
		return err
	}
	f.parts++
	for _, m := range rows {
		f.rows[m.Row()]++
	}
	return nil
}

// runBulk imports a file in runs of 200 rows.
func runBulk(t *testing.T, f *bulkFake, text string, change func(*ImportConfig)) (*Progress, error) {
	return run(t, &f.fake, text, func(cfg *ImportConfig) {
		cfg.Bulk, cfg.BulkMin, cfg.BatchRows, cfg.Workers = f, 100, 200, 2
		if change != nil {
			change(cfg)
		}
	})
}

// TestBulkImport (TR1): each row is applied once, by parts or by batches, whatever parts are refused or have to be sent again.
func TestBulkImport(t *testing.T) {
	seed := testseed.New(t)
	for name, refuse := range map[string]func(f *bulkFake, rows []*client.RowMutation) error{
		"none":            func(*bulkFake, []*client.RowMutation) error { return nil },
		"all":             func(*bulkFake, []*client.RowMutation) error { return client.ErrBulkRefused },
		"always expired":  func(*bulkFake, []*client.RowMutation) error { return client.ErrBulkExpired },
		"without a right": func(*bulkFake, []*client.RowMutation) error { return client.ErrPermission },
		"some": func(f *bulkFake, _ []*client.RowMutation) error {
			return []error{nil, client.ErrBulkExpired, client.ErrUnavailable, client.ErrNoFamily, client.ErrOverloaded}[f.r.IntN(5)]
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &bulkFake{refuse: refuse}
			f.fake = fake{r: rand.New(rand.NewPCG(seed, 0)), rows: map[string]int{}, fail: func(*fake, string) error { return nil }}
			p, err := runBulk(t, f, file(1000), nil)
			if err != nil || len(f.rows) != 1000 || p.Rows.Load() != 1000 || p.Cells.Load() != 1000 || p.Line.Load() != 1000 {
				t.Errorf("%s refused: %d rows, %d counted, up to line %d, %v; want 1000", name, len(f.rows), p.Rows.Load(), p.Line.Load(), err)
			}
			for row, n := range f.rows {
				if n != 1 {
					t.Errorf("%s refused: row %s was applied %d times", name, row, n)
				}
			}
			if written := f.parts > 0; written != (name == "none" || name == "some") {
				t.Errorf("%s refused: %d parts", name, f.parts)
			}
		})
	}
}

// TestBulkImportRejects: a part with rows that the table does not accept is sent in batches, which reject these and no others.
func TestBulkImportRejects(t *testing.T) {
	bad := func(row string) bool { return strings.HasSuffix(row, "333") }
	f := &bulkFake{refuse: func(_ *bulkFake, rows []*client.RowMutation) error {
		for _, m := range rows {
			if bad(m.Row()) {
				return client.ErrNoFamily
			}
		}
		return nil
	}}
	f.fake = fake{rows: map[string]int{}, fail: func(_ *fake, row string) error {
		if bad(row) {
			return client.ErrNoFamily
		}
		return nil
	}}
	rejected := 0
	p, err := runBulk(t, f, file(1000), func(cfg *ImportConfig) {
		cfg.Reject = func(_ *rowfile.Item, err error) error {
			if !errors.Is(err, client.ErrNoFamily) {
				t.Error(err)
			}
			rejected++
			return nil
		}
	})
	if err != nil || rejected != 1 || len(f.rows) != 999 || p.Rows.Load() != 999 || f.parts == 0 {
		t.Errorf("%d rejected, %d rows, %d counted, %d parts, %v; want 1 and 999", rejected, len(f.rows), p.Rows.Load(), f.parts, err)
	}
}

// TestBulkImportMergesLines: the lines of one row become one mutation, whose cells are in order, and the last of equal cells counts.
func TestBulkImportMergesLines(t *testing.T) {
	var got []string
	f := &bulkFake{refuse: func(_ *bulkFake, rows []*client.RowMutation) error {
		for _, m := range rows {
			got = append(got, fmt.Sprint(m.Row(), " ", m.Len()))
		}
		return nil
	}}
	f.fake = fake{rows: map[string]int{}}
	line := func(row, column string, at int, value string) string {
		return fmt.Sprintf("{\"row\":%q,\"cells\":[{\"column\":%q,\"timestamp\":%d,\"value\":%q}]}\n", row, column, at, value)
	}
	text := line("rb", "f:q", 1, "first") + line("ra", "f:q", 1, "a") + line("rb", "f:a", 1, "b") + line("rb", "f:q", 1, "last") + line("rb", "f:q", 2, strings.Repeat("v", 100))
	p, err := runBulk(t, f, text, nil)
	if err != nil || strings.Join(got, ",") != "ra 1,rb 3" || p.Rows.Load() != 5 {
		t.Errorf("rows %q, %d counted, %v", got, p.Rows.Load(), err)
	}
}
