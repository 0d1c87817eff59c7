package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// benchTable starts a node with a table of one family, and a client of it. rows
// rows of 1000 random bytes are in SSTables.
func benchTable(b *testing.B, rows int) (*client.Client, *client.Table) {
	b.Helper()
	ctx := context.Background()
	n := start(b, b.TempDir())
	b.Cleanup(func() { stop(b, n) })
	c, err := client.Open(ctx, n.RPCAddr(), client.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	spec, err := table.ParseFamilySpec("f:versions=1,block=8KiB")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Tables().Create(ctx, "bench", spec); err != nil {
		b.Fatal(err)
	}
	t := c.Table("bench")
	var batch []*client.RowMutation
	for i := range rows {
		batch = append(batch, client.NewRowMutation(benchRow(i)).Set("f:v", randomValue()))
		if len(batch) == 10_000 || i == rows-1 {
			if err := t.ApplyAll(ctx, batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	if rows > 0 {
		if err := c.Tables().Compact(ctx, "bench", false); err != nil {
			b.Fatal(err)
		}
	}
	return c, t
}

func benchRow(i int) string { return fmt.Sprintf("row%013d", i) }

func randomValue() []byte {
	v := make([]byte, 1000)
	for i := 0; i < len(v); i += 8 {
		r := rand.Uint64()
		for j := range 8 {
			v[i+j] = byte(r >> (8 * j))
		}
	}
	return v
}

func BenchmarkApply(b *testing.B) {
	_, t := benchTable(b, 0)
	v := randomValue()
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		m := client.NewRowMutation("")
		for pb.Next() {
			m.Reset(benchRow(int(n.Add(1)) * 7919 % 10_000_019))
			m.Set("f:v", v)
			if err := t.Apply(context.Background(), m); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkGet(b *testing.B) {
	const rows = 100_000
	_, t := benchTable(b, rows)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			row, err := t.Get(context.Background(), benchRow(rand.IntN(rows)))
			if err != nil || row == nil {
				b.Error(row, err)
				return
			}
		}
	})
}

func BenchmarkScan(b *testing.B) {
	const rows = 100_000
	_, t := benchTable(b, rows)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		s := t.Scan(context.Background())
		for n < b.N && s.Next() {
			n++
		}
		if err := s.Err(); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// BenchmarkGetFiltered reads rows with a filter that the node has compiled.
func BenchmarkGetFiltered(b *testing.B) {
	const rows = 10_000
	_, t := benchTable(b, rows)
	f := client.Filter(table.CellsPerColumnLimit(1))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			row, err := t.Get(context.Background(), benchRow(rand.IntN(rows)), f)
			if err != nil || row == nil {
				b.Error(row, err)
				return
			}
		}
	})
}

// BenchmarkScanFiltered scans with a pattern that takes less time than to read a row, in large batches: alone, and beside scans
// whose pattern takes most of their time. An operation is a row.
func BenchmarkScanFiltered(b *testing.B) {
	const rows = 20_000
	_, t := benchTable(b, rows)
	short := table.Chain{table.QualifierRegex("v|[w-z]+"), table.StripValue{}}
	scan := func(ctx context.Context, f table.Filter, n int) (read int) {
		s := t.Scan(ctx, client.Filter(f), client.BatchRows(rows))
		defer s.Close()
		for read < n && s.Next() {
			read++
		}
		if err := s.Err(); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
		return read
	}
	for _, others := range []int{0, 8} {
		b.Run(fmt.Sprint("beside", others), func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for range others {
				wg.Go(func() {
					for ctx.Err() == nil {
						scan(ctx, table.ValueRegex(`.*(?:x?){60}y`), rows)
					}
				})
			}
			b.ResetTimer()
			for n := 0; n < b.N; {
				n += scan(ctx, short, b.N-n)
			}
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkRowSet reads each 20th of 100,000 rows: by one scan, in both directions, by one read for each row, and by reads of
// 100 rows.
func BenchmarkRowSet(b *testing.B) {
	const rows, every = 100_000, 20
	_, t := benchTable(b, rows)
	var keys []string
	for i := 0; i < rows; i += every {
		keys = append(keys, benchRow(i))
	}
	for name, read := range map[string]func(ctx context.Context) (n int, err error){
		"scan": func(ctx context.Context) (int, error) {
			got, err := scannedKeys(ctx, t, client.RowKeys(keys...))
			return len(got), err
		},
		"reversed": func(ctx context.Context) (int, error) {
			got, err := scannedKeys(ctx, t, client.RowKeys(keys...), client.Reversed())
			return len(got), err
		},
		"each": func(ctx context.Context) (n int, err error) {
			for _, key := range keys {
				if row, err := t.Get(ctx, key); err != nil || row == nil {
					return n, err
				}
				n++
			}
			return n, nil
		},
		"hundreds": func(ctx context.Context) (n int, err error) {
			for i := 0; i < len(keys); i += 100 {
				got, err := t.GetAll(ctx, keys[i:i+100])
				if err != nil {
					return n, err
				}
				n += len(got)
			}
			return n, nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if n, err := read(context.Background()); err != nil || n != len(keys) {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(keys)), "ns/row")
		})
	}
}
