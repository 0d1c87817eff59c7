package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a table that applies some mutations, and fails others.
type fake struct {
	mu   sync.Mutex
	r    *rand.Rand
	rows map[string]int // how often each has been applied
	// fail returns the error for a row, or nil.
	fail func(f *fake, row string) error
}

func (f *fake) ApplyAll(_ context.Context, ms []*client.RowMutation, _ ...client.ApplyOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := &client.BatchError{Errs: make([]error, len(ms))}
	for i, m := range ms {
		if err := f.fail(f, m.Row()); err != nil {
			failed.Errs[i], failed.Failed = err, failed.Failed+1
			continue
		}
		f.rows[m.Row()]++
	}
	if failed.Failed > 0 {
		return failed
	}
	return nil
}

// file returns a file of n rows.
func file(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"row\":\"%d\",\"cells\":[{\"column\":\"f:q\",\"value\":\"v\"}]}\n", i)
	}
	return b.String()
}

// run imports a file.
func run(t *testing.T, f *fake, text string, change func(*ImportConfig)) (*Progress, error) {
	t.Helper()
	source, err := rowfile.Open(rowfile.JSON, strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	cfg := ImportConfig{Table: f, Source: source, Workers: 4, BatchRows: 7, BatchBytes: 1 << 20, RetryFor: time.Minute,
		Reject: func(_ *rowfile.Item, err error) error { return err }}
	if change != nil {
		change(&cfg)
	}
	p := &Progress{}
	return p, Import(t.Context(), cfg, p)
}

// TestImportRetries (TR1): rows whose errors pass are applied in the end, and the others are not applied again.
func TestImportRetries(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := &fake{r: rand.New(rand.NewPCG(seed, 0)), rows: map[string]int{}, fail: func(f *fake, _ string) error {
			passing := []error{client.ErrUnavailable, client.ErrAmbiguous, client.ErrNotServing, client.ErrOverloaded, &client.QuotaError{}}
			if i := f.r.IntN(2 * len(passing)); i < len(passing) {
				return passing[i]
			}
			return nil
		}}
		p, err := run(t, f, file(1000), nil)
		if err != nil || len(f.rows) != 1000 || p.Rows.Load() != 1000 || p.Line.Load() != 1000 {
			t.Errorf("%d rows, %d counted, up to line %d, %v; want 1000", len(f.rows), p.Rows.Load(), p.Line.Load(), err)
		}
		for row, n := range f.rows {
			if n != 1 {
				t.Errorf("row %s was applied %d times", row, n)
			}
		}
	})
}

// TestImportGivesUp: an error that does not pass for RetryFor ends the import, and so does one that concerns all rows, at once.
func TestImportGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, want := range []error{client.ErrUnavailable, client.ErrPermission, client.ErrDiskFull, client.ErrNoTable, &client.QuotaError{Bytes: true}} {
			began := time.Now()
			_, err := run(t, &fake{rows: map[string]int{}, fail: func(*fake, string) error { return want }}, file(100), nil)
			if took := time.Since(began); !errors.Is(err, want) || errors.Is(want, client.ErrUnavailable) != (took >= time.Minute) || took > 2*time.Minute {
				t.Errorf("%v after %v, want %v", err, took, want)
			}
		}
	})
}

// TestImportResumes (TR2): an import that ends at any time, and continues behind its line, applies or rejects each row.
func TestImportResumes(t *testing.T) {
	const rows = 300
	text := strings.Replace(file(rows), `"row":"150"`, `"row":150`, 1)
	seed := testseed.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		left, all, line, rejected := r.IntN(rows), map[string]int{}, int64(0), 0
		for done := false; !done; left = rows {
			broken := errors.New("broken")
			f := &fake{rows: map[string]int{}, fail: func(*fake, string) error {
				if left--; left < 0 {
					return broken
				}
				return nil
			}}
			p, err := run(t, f, text, func(cfg *ImportConfig) {
				cfg.From = line
				cfg.Reject = func(*rowfile.Item, error) error { rejected++; return nil }
			})
			if err != nil && !errors.Is(err, broken) {
				t.Fatal(err)
			}
			maps.Copy(all, f.rows)
			line, done = p.Line.Load(), err == nil
		}
		if len(all) != rows-1 || rejected == 0 {
			t.Fatalf("%d rows applied, %d rejected, want %d and 1", len(all), rejected, rows-1)
		}
	}
}

// parts is a file of records that have several items each.
type parts struct {
	rowfile.Source
	records, of int64
	record, at  int64
}

func (s *parts) Next(item *rowfile.Item) error {
	if s.at == 0 {
		if s.record == s.records {
			return io.EOF
		}
		s.record, s.at = s.record+1, s.of
	}
	s.at--
	*item = rowfile.Item{Line: s.record, Record: true, Bytes: int(s.of - s.at), More: s.at > 0}
	return nil
}

func (s *parts) Decode(item *rowfile.Item, _ *rowfile.Parser, row *table.Row) error {
	row.Key = fmt.Appendf(nil, "%d/%d", item.Line, item.Bytes)
	row.Cells = append(row.Cells[:0], table.Cell{Family: "f", Timestamp: 1})
	return nil
}

// TestImportResumesInRecords (TR2): an import continues behind a record only if all of its items have been applied, in whatever batches they are.
func TestImportResumesInRecords(t *testing.T) {
	const records, of = 40, 5
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range 50 {
		left, all, line := r.IntN(records*of), map[string]int{}, int64(0)
		for done := false; !done; left = records * of {
			broken := errors.New("broken")
			f := &fake{rows: map[string]int{}, fail: func(*fake, string) error {
				if left--; left < 0 {
					return broken
				}
				return nil
			}}
			p, err := run(t, f, "", func(cfg *ImportConfig) {
				cfg.From, cfg.Source, cfg.BatchRows = line, &parts{records: records, of: of}, 3
			})
			if err != nil && !errors.Is(err, broken) {
				t.Fatal(err)
			}
			maps.Copy(all, f.rows)
			line, done = p.Line.Load(), err == nil
		}
		if len(all) != records*of || line != records {
			t.Fatalf("%d items applied, up to record %d, want %d and %d", len(all), line, records*of, records)
		}
	}
}

// TestImportEndsAtTheFirstBadRow: whatever batch fails first, the error is that of the first bad line, the rows before it are applied, and only cells that
// were applied are counted.
func TestImportEndsAtTheFirstBadRow(t *testing.T) {
	seed := testseed.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		first := 1 + r.IntN(200)
		text := strings.ReplaceAll(file(300), `"row":"250"`, `"row":250`)
		f := &fake{rows: map[string]int{}, fail: func(_ *fake, row string) error {
			if n, _ := strconv.Atoi(row); n >= first {
				return client.ErrNoFamily
			}
			return nil
		}}
		p, err := run(t, f, text, func(cfg *ImportConfig) {
			cfg.Reject = func(item *rowfile.Item, err error) error { return &rowfile.LineError{Line: item.Line, Err: err} }
		})
		var bad *rowfile.LineError
		if !errors.As(err, &bad) || bad.Line != int64(first+1) {
			t.Fatalf("%v, want line %d", err, first+1)
		}
		if len(f.rows) != first || p.Rows.Load() != int64(first) || p.Cells.Load() != int64(first) {
			t.Fatalf("%d rows applied, %d rows and %d cells counted, want %d", len(f.rows), p.Rows.Load(), p.Cells.Load(), first)
		}
	}
}

// TestImportRejects: rows that the table does not accept are rejected one by one.
func TestImportRejects(t *testing.T) {
	f := &fake{rows: map[string]int{}, fail: func(_ *fake, row string) error {
		if strings.HasSuffix(row, "3") {
			return client.ErrNoFamily
		}
		return nil
	}}
	var lines []int64
	p, err := run(t, f, file(100), func(cfg *ImportConfig) {
		cfg.Reject = func(item *rowfile.Item, err error) error {
			if !errors.Is(err, client.ErrNoFamily) {
				t.Error(err)
			}
			lines = append(lines, item.Line)
			return nil
		}
	})
	if err != nil || len(f.rows) != 90 || len(lines) != 10 || p.Rejected.Load() != 10 || p.Line.Load() != 100 {
		t.Errorf("%d rows, rejected lines %v, up to line %d, %v", len(f.rows), lines, p.Line.Load(), err)
	}
}
