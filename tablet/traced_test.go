package tablet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/table"
)

// traced runs an operation with a record, sampled or not, and returns what it recorded.
func traced(t *testing.T, sampled bool, do func(r *trace.Record) error) (stages map[trace.Stage]time.Duration, counts map[trace.Counter]int64) {
	t.Helper()
	var r trace.Record
	r.Begin(time.Now(), sampled)
	if err := do(&r); err != nil {
		t.Fatal(err)
	}
	took := time.Since(r.Began())
	stages, counts = map[trace.Stage]time.Duration{}, map[trace.Counter]int64{}
	r.Stages(func(s trace.Stage, first, d time.Duration, _ int64) {
		if first+d > took+time.Microsecond || d <= 0 {
			t.Errorf("%v takes %v from %v on, and all %v", s, d, first, took)
		}
		stages[s] = d
	})
	r.Counters(func(c trace.Counter, n int64) { counts[c] = n })
	return stages, counts
}

// TestTraced: the traces of reads, scans and mutations have the files and blocks that they used, and how long they waited for the disk and the
// commit log. Answers end a trace, so that nothing is recorded afterwards.
func TestTraced(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	row := func(i int) []byte { return fmt.Appendf(nil, "row%04d", i) }
	for file := range 2 {
		for i := range 200 {
			e.mustApply(string(row(2*i+file)), table.Set("f", []byte("q"), 1, randomValue(2000)))
		}
		if err := e.tabletOfTest().flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e.close()
	e.open() // the cache is empty
	read := func(emit Emit) func(r *trace.Record) error {
		return func(r *trace.Record) error {
			return e.For(nil).Traced(r).ReadRow(t.Context(), testTable, row(10), nil, emit)
		}
	}
	stages, counts := traced(t, false, read(func([]byte, []table.Cell) error { return nil }))
	if counts[trace.Files] != 1 || counts[trace.FilesSkipped] != 1 || counts[trace.Blocks] != 1 || counts[trace.BlocksMissed] != 1 || counts[trace.Tablets] != 1 {
		t.Errorf("the first read: %v", counts)
	}
	if stages[trace.Disk] == 0 || stages[trace.Read] != 0 {
		t.Errorf("the first read: %v", stages)
	}
	var r trace.Record
	if stages, counts = traced(t, true, func(own *trace.Record) error {
		return read(func([]byte, []table.Cell) error {
			r.Begin(time.Now(), false) // as if the request's record were reused after the answer
			return nil
		})(own)
	}); stages[trace.Disk] != 0 || stages[trace.Read] == 0 || counts[trace.BlocksMissed] != 0 || counts[trace.Blocks]+counts[trace.FilesCached] != 1 {
		t.Errorf("the second read: %v %v", stages, counts)
	}
	_, counts = traced(t, true, func(r *trace.Record) error {
		_, err := e.For(nil).Traced(r).Scan(t.Context(), testTable, Range{}, nil, nil, func([]byte, []table.Cell) error { return nil })
		return err
	})
	if counts[trace.Files] != 2 || counts[trace.Blocks] < 10 || counts[trace.BlocksMissed] != counts[trace.Blocks]-1 {
		t.Errorf("the scan: %v", counts)
	}
	for _, sampled := range []bool{true, false} {
		stages, counts = traced(t, sampled, func(r *trace.Record) error {
			done := make(chan error, 1)
			e.For(nil).Traced(r).Apply(testTable, &table.RowMutation{Row: row(1), Mutations: []table.Mutation{table.DeleteRow()}}, func(_ int64, err error) { done <- err })
			return <-done
		})
		if stages[trace.LogQueue] == 0 || stages[trace.Replicas] == 0 || (stages[trace.Apply] != 0) != sampled || counts[trace.Rows] != 1 {
			t.Errorf("the mutation: %v %v", stages, counts)
		}
		stages, counts = traced(t, sampled, func(r *trace.Record) error {
			matched, err := e.For(nil).Traced(r).CheckAndMutate(t.Context(), testTable, row(7), nil, []table.Mutation{table.Set("f", []byte("q"), 2, nil)}, nil)
			if !matched {
				err = errors.Join(err, errors.New("no match"))
			}
			return err
		})
		if stages[trace.Replicas] == 0 || counts[trace.Rows] != 1 || counts[trace.Files] != 1 {
			t.Errorf("the conditional mutation: %v %v", stages, counts)
		}
	}
}

// TestTracedLatch: a mutation's trace has how long it waited for the latch of its row.
func TestTracedLatch(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	l := e.tabletOfTest().fence.latches.Of([]byte("r"))
	for held := time.Millisecond; held < time.Minute; held *= 2 { // until the mutation comes while it is held
		l.LockExclusive()
		time.AfterFunc(held, l.UnlockExclusive)
		stages, _ := traced(t, false, func(r *trace.Record) error {
			done := make(chan error, 1)
			e.For(nil).Traced(r).Apply(testTable, &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.DeleteRow()}}, func(_ int64, err error) { done <- err })
			return <-done
		})
		if stages[trace.Latch] > 0 {
			return
		}
	}
	t.Error("no wait for the latch is recorded")
}
