package tablet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
)

// benchEnv is a server on a disk in memory, with n rows.
func benchEnv(b *testing.B, cfg Config, n int, options ...string) *env {
	e := newEnv(b, cfg, append(options, "f:")...)
	e.close()
	e.extent = 64 << 20
	e.open()
	for _, t := range e.served.all() {
		t.schema.Store(newSchema(e.schema, &fakeVersion{generation: 1})) // as in a cluster
	}
	value := make([]byte, 100)
	for i := range n {
		e.mustApply(fmt.Sprintf("row%06d", i), table.Set("f", []byte("q"), 1, value))
	}
	return e
}

// BenchmarkApply writes rows from 16 goroutines.
func BenchmarkApply(b *testing.B) { benchApply(b) }

// BenchmarkApplyStreamed is BenchmarkApply in a table with a change stream.
func BenchmarkApplyStreamed(b *testing.B) { benchApply(b, streamed) }

func benchApply(b *testing.B, options ...string) {
	e := benchEnv(b, Config{MemtablesBytesMax: 1 << 30}, 0, options...)
	value := make([]byte, 100)
	var count atomic.Int64
	b.SetParallelism(8)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		row := make([]byte, 0, 16)
		ms := []table.Mutation{table.Set("f", []byte("q"), table.ServerTimestamp, value)}
		done := make(chan error, 1)
		answer := func(_ int64, err error) { done <- err }
		for pb.Next() {
			row = fmt.Appendf(row[:0], "row%06d", count.Add(1)%100_000)
			e.Apply(testTable, &table.RowMutation{Row: row, Mutations: ms}, answer)
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReadRow reads rows of a memtable.
func BenchmarkReadRow(b *testing.B) {
	const rows = 10_000
	e := benchEnv(b, Config{MemtablesBytesMax: 1 << 30}, rows)
	row := make([]byte, 0, 16)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i += 7919
		row = fmt.Appendf(row[:0], "row%06d", i%rows)
		found := false
		err := e.ReadRow(context.Background(), testTable, row, nil, func([]byte, []table.Cell) error { found = true; return nil })
		if err != nil || !found {
			b.Fatal(found, err)
		}
	}
}

// BenchmarkReadRowOfFile reads rows of 1000 bytes of an SSTable of 20 MB: uniformly with a cache of
// its size and with a tenth of that, and by a Zipfian distribution with the latter.
func BenchmarkReadRowOfFile(b *testing.B) {
	const rows = 20_000
	for _, c := range []struct {
		name  string
		cache int64
		zipf  bool
	}{{"all cached", 64 << 20, false}, {"tenth", 2 << 20, false}, {"zipf tenth", 2 << 20, true}} {
		b.Run(c.name, func(b *testing.B) {
			e := newEnv(b, Config{MemtablesBytesMax: 1 << 30, CacheBytes: c.cache}, "f:compression=none")
			for i := range rows {
				e.mustApply(fmt.Sprintf("row%06d", i), table.Set("f", []byte("q"), 1, randomValue(1000)))
			}
			if err := e.Compact(context.Background(), testTable, true); err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			zipf := rand.NewZipf(rng, 1.1, 1, rows-1)
			row := make([]byte, 0, 16)
			next := func() uint64 {
				if c.zipf {
					return zipf.Uint64() * 7919 % rows
				}
				return rng.Uint64N(rows)
			}
			read := func() {
				row = fmt.Appendf(row[:0], "row%06d", next())
				found := false
				err := e.ReadRow(context.Background(), testTable, row, nil, func([]byte, []table.Cell) error { found = true; return nil })
				if err != nil || !found {
					b.Fatal(found, err)
				}
			}
			for range 3 * rows {
				read()
			}
			b.ReportAllocs()
			for b.Loop() {
				read()
			}
		})
	}
}

// BenchmarkSplit splits a tablet of 10,000 rows and merges the halves, while 4 writers wait 1 ms
// for the disk with each commit. It reports the longest write pause of a split and a merge, and the
// slowest write.
func BenchmarkSplit(b *testing.B) {
	e := benchEnv(b, Config{}, 10_000)
	e.fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	var stop atomic.Bool
	var slowest atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	for w := range 4 {
		wg.Go(func() {
			for i := w; !stop.Load(); i += 4 {
				began := time.Now()
				if _, err := e.apply(fmt.Sprintf("row%06d", i*7919%10_000), table.Set("f", []byte("q"), 1, make([]byte, 100))); err != nil {
					b.Error(err)
					return
				}
				slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			}
		})
	}
	worst := time.Duration(0)
	b.ResetTimer()
	for range b.N {
		lower, _, err := e.Split(context.Background(), lastTablet, nil)
		if err != nil {
			b.Fatal(err)
		}
		worst = max(worst, e.Stats().SplitPause)
		if err := e.Merge(context.Background(), lower, lastTablet); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms-split-pause-max")
	b.ReportMetric(float64(slowest.Load())/1e6, "ms-write-max")
}

// BenchmarkScanOfTablet scans a tablet of 50,000 rows, forward and reversed: in a memtable, in a file, in five files
// with parts of all rows, and rows of ten cells.
func BenchmarkScanOfTablet(b *testing.B) {
	const rows = 50_000
	for _, c := range []struct {
		name         string
		files, cells int
		bytes        int
	}{{"memtable", 0, 1, 100}, {"file", 1, 1, 100}, {"values of 1 KB", 1, 1, 1000}, {"5 files", 5, 1, 100}, {"10 cells", 1, 10, 20}} {
		e := newEnv(b, Config{MemtablesBytesMax: 1 << 30, CacheBytes: 256 << 20, FilesMerge: 20}, "f:compression=none")
		for f := range max(c.files, 1) {
			for i := f; i < rows/c.cells; i += max(c.files, 1) {
				ms := make([]table.Mutation, c.cells)
				for q := range ms {
					ms[q] = table.Set("f", fmt.Appendf(nil, "q%d", q), 1, randomValue(c.bytes))
				}
				e.mustApply(fmt.Sprintf("row%06d", i*7919%(rows/c.cells)), ms...)
			}
			if c.files > 0 {
				if err := e.Compact(context.Background(), testTable, false); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, reversed := range []bool{false, true} {
			name := "forward"
			if reversed {
				name = "reversed"
			}
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					n := 0
					_, err := e.Scan(context.Background(), testTable, Range{Reversed: reversed}, nil, func([]byte, []table.Cell) error { n++; return nil })
					if err != nil || n != rows/c.cells {
						b.Fatal(n, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows/c.cells), "ns/row")
			})
		}
	}
}
