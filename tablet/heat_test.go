package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/heat"
)

// TestHeat (HM1): rows that are written, read and scanned are counted once, while tablets split and the counters are taken.
func TestHeat(t *testing.T) {
	const workers, rounds = 4, 300
	e := newEnv(t, Config{}, "f:")
	ctx := context.Background()
	for i := range 100 {
		e.mustApply(fmt.Sprintf("row%02d", i), table.Set("f", []byte("q"), 1, []byte("value")))
	}
	var sums heat.Sums
	take := func() {
		for _, p := range e.TakeHeat() {
			for _, b := range p.Buckets {
				sums.Add(b.Sums)
			}
		}
	}
	take()
	if sums.Writes != 100 || sums.Reads != 0 || sums.WriteBytes < 100*int64(len("row00fqvalue")) {
		t.Fatalf("%+v after 100 writes", sums)
	}
	sums = heat.Sums{}
	var reads atomic.Int64
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range rounds {
				row := fmt.Sprintf("row%02d", (i*7+w)%100)
				if _, err := e.apply(row, table.Set("f", []byte("q"), 2, []byte("value"))); err != nil {
					t.Error(err)
				}
				if err := e.ReadRow(ctx, testTable, []byte(row), nil, func([]byte, []table.Cell) error { reads.Add(1); return nil }); err != nil {
					t.Error(err)
				}
				if _, err := e.For(nil).Scan(ctx, testTable, Range{Start: []byte(row)}, nil, &ScanBounds{Rows: 3}, func([]byte, []table.Cell) error { reads.Add(1); return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	for splits, going := 0, true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		if splits < 20 {
			splits++
			loaded := e.Served().Loaded()
			if _, _, err := e.Split(ctx, loaded[splits%len(loaded)].Ref(), nil); err != nil && !errors.Is(err, ErrNoSplitRow) {
				t.Error(err)
			}
		}
		take()
	}
	take()
	if sums.Writes != workers*rounds || sums.Reads != reads.Load() || sums.ReadBytes < 5*sums.Reads || len(e.Served().Loaded()) < 4 {
		t.Errorf("%+v after %d writes and %d reads, with %d tablets", sums, workers*rounds, reads.Load(), len(e.Served().Loaded()))
	}
	e.mustApply("row00", table.Set("f", []byte("q"), 3, make([]byte, heat.LargeRow)))
	if parts := e.TakeHeat(); len(parts) != 1 || len(parts[0].Large) != 1 || string(parts[0].Large[0].Row) != "row00" {
		t.Errorf("a large row: %+v", parts)
	}
}

// BenchmarkHeat: what reads and writes of rows cost with counters of heat and without.
func BenchmarkHeat(b *testing.B) {
	e := benchEnv(b, Config{MemtablesBytesMax: 1 << 30}, 10_000)
	ctx, emit := context.Background(), func([]byte, []table.Cell) error { return nil }
	served := e.served.all()[0]
	counters := map[string]*heat.Tablet{"with": served.heat, "without": nil}
	for _, name := range []string{"without", "with"} {
		b.Run("read/"+name, func(b *testing.B) {
			served.heat = counters[name]
			row := make([]byte, 0, 16)
			for i := 0; b.Loop(); i++ {
				row = fmt.Appendf(row[:0], "row%06d", i%10_000)
				if err := e.ReadRow(ctx, testTable, row, nil, emit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"without", "with"} {
		b.Run("scan/"+name, func(b *testing.B) {
			served.heat = counters[name]
			for b.Loop() {
				if _, err := e.For(nil).Scan(ctx, testTable, Range{}, nil, nil, emit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
