package tablet

import (
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/table/hll"
)

// BenchmarkAdd adds an integer to a cell of an aggregate family, of the 100,000 cells in a memtable.
func BenchmarkAdd(b *testing.B) {
	for _, a := range []string{"sum", "hll"} {
		b.Run(a, func(b *testing.B) {
			e := newEnv(b, Config{MemtablesBytesMax: 1 << 30}, "f:aggregate="+a)
			done := make(chan error, 1)
			answer := func(_ int64, err error) { done <- err }
			var row []byte
			b.ReportAllocs()
			for i := range b.N {
				row = fmt.Appendf(row[:0], "row%06d", i%100_000)
				e.Apply(testTable, &table.RowMutation{Row: row, Mutations: []table.Mutation{table.Add("f", nil, 0, int64(i))}}, answer)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReadAggregate reads a cell of operands in a memtable: single integers, or two sketches of many.
func BenchmarkReadAggregate(b *testing.B) {
	read := func(b *testing.B, e *env) {
		b.ReportAllocs()
		for b.Loop() {
			found := 0
			err := e.ReadRow(b.Context(), testTable, []byte("row"), nil, func(_ []byte, cells []table.Cell) error { found = len(cells); return nil })
			if err != nil || found != 1 {
				b.Fatal(found, err)
			}
		}
	}
	for _, a := range []string{"sum", "hll"} {
		for _, n := range []int{1, 100, 10_000} {
			b.Run(fmt.Sprintf("%s/%d integers", a, n), func(b *testing.B) {
				e := newEnv(b, Config{MemtablesBytesMax: 1 << 30}, "f:aggregate="+a)
				for i := range n {
					e.mustApply("row", table.Add("f", nil, 0, int64(i)))
				}
				read(b, e)
			})
		}
	}
	for _, n := range []int64{1000, 20_000, 100_000} {
		b.Run(fmt.Sprintf("hll/2 sketches of %d", n), func(b *testing.B) {
			e := newEnv(b, Config{MemtablesBytesMax: 1 << 30}, "f:aggregate=hll")
			for from := range int64(2) {
				var s hll.Sketch
				for i := range n {
					s.Add(from*n + i)
				}
				e.mustApply("row", table.Merge("f", nil, 0, s.Append(nil)))
			}
			read(b, e)
		})
	}
}
