package tablet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/steledb/stele/table"
)

// BenchmarkBulk writes rows through the commit log, with the minor compaction that they cause, and as a part of a bulk import.
func BenchmarkBulk(b *testing.B) {
	for _, valueBytes := range []int{20, 1000} {
		const rows = 20_000
		text := make([]byte, 8<<20)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range text {
			text[i] = "0123456789abcdef"[r.IntN(16)]
		}
		all := make([]table.RowMutation, rows)
		for i := range all {
			at := r.IntN(len(text) - valueBytes)
			all[i] = rowMutation(fmt.Sprintf("row%08d", i), table.Set("f", []byte("q"), 5, text[at:at+valueBytes]))
		}
		bench := func(name string, write func(b *testing.B, e *env, n int)) {
			b.Run(fmt.Sprintf("%s/%d bytes", name, valueBytes), func(b *testing.B) {
				e := newEnv(b, Config{CompactionBytesPerSecond: -1, FilesMerge: 30, FilesMax: 1 << 20}, "f")
				b.SetBytes(int64(rows * (valueBytes + 11)))
				for n := 0; b.Loop(); n++ {
					write(b, e, n)
					b.StopTimer()
					if err := clearRows(context.Background(), e.Server, nil, nil); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		}
		bench("batches", func(b *testing.B, e *env, _ int) {
			var left sync.WaitGroup
			left.Add(rows)
			for i := range all {
				e.Apply(testTable, &all[i], func(_ int64, err error) {
					if err != nil {
						b.Error(err)
					}
					left.Done()
				})
			}
			left.Wait()
			if err := e.served.all()[0].flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
		bench("bulk", func(b *testing.B, e *env, n int) {
			if err := e.commitPart(partOf(b, e.Server, PartID{byte(n), byte(n >> 8)}, all...)); err != nil {
				b.Fatal(err)
			}
		})
	}
}
