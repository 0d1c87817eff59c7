package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
)

// Only as many reads of large rows run at once as memory allows, however the rows are stored. The
// others wait, and fail when they have waited for too long or their time is up. Reads of small rows
// do not wait (I13).
func TestLargeReadsAreBounded(t *testing.T) {
	const cell = 1 << 20
	zeros := make([]byte, cell)
	for _, test := range []struct {
		what, compression string
		row               func() []table.Mutation
		exact             bool // each reserves exactly what it needs
	}{
		{"cells", "none", func() []table.Mutation { return []table.Mutation{table.Set("f", []byte("q"), 1, randomValue(cell))} }, true},
		{"cells of zeros", "s2", func() []table.Mutation { return []table.Mutation{table.Set("f", []byte("q"), 1, zeros)} }, true},
		{"cells of zeros, zstd", "zstd", func() []table.Mutation { return []table.Mutation{table.Set("f", []byte("q"), 1, zeros)} }, true},
		{"rows of many cells", "none", func() (all []table.Mutation) {
			for i := range 16 {
				all = append(all, table.Set("f", fmt.Appendf(nil, "q%02d", i), 1, randomValue(cell/16)))
			}
			return all
		}, false},
		{"columns of many versions", "none", func() (all []table.Mutation) {
			for i := range 16 {
				all = append(all, table.Set("f", []byte("q"), int64(1+i), randomValue(cell/16)))
			}
			return all
		}, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			e := newEnv(t, Config{RowReadBytesMax: 2*budget.LargeTimes*cell + cell, OverloadWait: 300 * time.Millisecond}, "f:compression="+test.compression)
			for i := range 8 {
				e.mustApply(fmt.Sprintf("large%d", i), test.row()...)
			}
			e.readLarge(t, test.exact)
		})
	}
}

// readLarge reads large0 to large7, two of which fit at once.
func (e *env) readLarge(t *testing.T, exact bool) {
	e.mustApply("small", table.Set("f", []byte("q"), 1, []byte("v")))
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	var in, most atomic.Int64
	var done, refused, late atomic.Int64
	leave := make(chan struct{})
	first := int64(1)
	if exact {
		first = 2
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx, cancel := context.Background(), func() {}
			if i == 7 {
				for in.Load() < first { // it is not among the first
					time.Sleep(time.Millisecond)
				}
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			}
			defer cancel()
			err := e.ReadRow(ctx, testTable, fmt.Appendf(nil, "large%d", i), nil, func([]byte, []table.Cell) error {
				n := in.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-leave
				in.Add(-1)
				return nil
			})
			switch {
			case err == nil:
				done.Add(1)
			case errors.Is(err, api.ErrOverloaded):
				refused.Add(1)
			case errors.Is(err, context.DeadlineExceeded):
				late.Add(1)
			default:
				t.Errorf("read: %v", err)
			}
		})
	}
	for end := time.Now().Add(10 * time.Second); in.Load()+refused.Load()+late.Load() < 8 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got := e.read("small", nil); len(got) != 1 {
			t.Fatalf("%q", got)
		}
	}
	close(leave)
	wg.Wait()
	if n := most.Load(); n > 2 || n < 1 || done.Load() < n || refused.Load() == 0 || done.Load()+refused.Load()+late.Load() != 8 {
		t.Errorf("at most %d at once, %d done, %d refused, %d late", n, done.Load(), refused.Load(), late.Load())
	}
	if exact && (most.Load() != 2 || done.Load() != 2 || refused.Load() != 5 || late.Load() != 1) {
		t.Errorf("at most %d at once, %d done, %d refused, %d late, want 2, 2, 5, 1", most.Load(), done.Load(), refused.Load(), late.Load())
	}
	for i := range 8 {
		if got := e.read(fmt.Sprintf("large%d", i), nil); len(got) == 0 {
			t.Errorf("large%d afterwards: %q", i, got)
		}
	}
	if !e.largeReads.TryReserve(e.largeReads.Total()) {
		t.Error("memory is reserved without reads")
	}
	e.largeReads.Release(e.largeReads.Total())
}

// A read that waits for the memory of a large cell holds no memtables once they are written out,
// and completes when there is memory (I13).
func TestWaitForMemoryHoldsNoMemtable(t *testing.T) {
	const cell, rows = 1 << 20, 6
	ctx := t.Context()
	collect := func(all *[]string) Emit {
		return func(key []byte, cells []table.Cell) error {
			*all = append(*all, fmt.Sprintf("%s %d", key, len(cells[0].Value)))
			return nil
		}
	}
	var keys [][]byte
	for i := range rows {
		keys = append(keys, fmt.Appendf(nil, "row%d", i))
	}
	for what, read := range map[string]func(e *env, emit Emit) error{
		"rows": func(e *env, emit Emit) error {
			for _, key := range keys {
				if err := e.ReadRow(ctx, testTable, key, nil, emit); err != nil {
					return err
				}
			}
			return nil
		},
		"rows together": func(e *env, emit Emit) error {
			_, err := e.For(nil).ReadRows(ctx, testTable, keys, nil, func(_ int, key []byte, cells []table.Cell) error { return emit(key, cells) })
			return err
		},
		"scan": func(e *env, emit Emit) error {
			_, err := e.Scan(ctx, testTable, Range{}, nil, emit)
			return err
		},
		"bounded scan": func(e *env, emit Emit) error {
			var rg Range
			for looked := 0; ; {
				most := ScanBounds{Rows: 1}
				next, err := e.For(nil).Scan(ctx, testTable, rg, nil, &most, emit)
				if looked += most.Looked; err != nil || next == nil {
					if looked != rows && looked != rows+1 { // zzz, which is filtered out, may be present by then
						t.Errorf("looked at %d rows", looked)
					}
					return err
				}
				rg.Start = next
			}
		},
	} {
		e := newEnv(t, Config{RowReadBytesMax: 2*budget.LargeTimes*cell + cell, MemtablesBytesMax: 64 << 20, OverloadWait: 20 * time.Second}, "f:compression=none")
		var want []string
		for i, key := range keys { // small and large ones
			size := []int{100, cell, 2 * cell}[i%3]
			e.mustApply(string(key), table.Set("f", []byte("q"), 1, randomValue(size)))
			want = append(want, fmt.Sprintf("%s %d", key, size))
		}
		if err := e.Compact(ctx, testTable, true); err != nil {
			t.Fatal(err)
		}
		gate := e.Server.largeReads
		if !gate.TryReserve(gate.Total()) {
			t.Fatal("memory is reserved without reads")
		}
		var got []string
		ended := make(chan error, 1)
		go func() { ended <- read(e, collect(&got)) }()
		for gate.TryReserve(0) { // no read waits yet
			time.Sleep(time.Millisecond)
		}
		e.mustApply("zzz", table.Set("f", []byte("q"), 1, randomValue(cell/4)), table.DeleteRow())
		if err := e.Compact(ctx, testTable, false); err != nil {
			t.Fatal(err)
		}
		if n := e.writeMemory.Lingering(); n != 0 {
			t.Errorf("%s: waiting reads hold %d bytes of memtables", what, n)
		}
		gate.Release(gate.Total())
		if err := <-ended; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %q", what, err, got)
		}
		if !gate.TryReserve(gate.Total()) {
			t.Errorf("%s: not all memory was released", what)
		}
		e.close()
	}
}

// A scan's position inside a tablet that was unloaded is distinguished from the start of a tablet:
// it may be a row that the caller may not see.
func TestTabletUnloadedWhileScanWaits(t *testing.T) {
	const cell = 1 << 20
	ctx := t.Context()
	e := newEnv(t, Config{RowReadBytesMax: 2*budget.LargeTimes*cell + cell, OverloadWait: 20 * time.Second}, "f:compression=none", "hidden:compression=none")
	e.mustApply("a", table.Set("f", []byte("q"), 1, []byte("seen")))
	e.mustApply("b", table.Set("hidden", []byte("q"), 1, []byte("small")))
	e.mustApply("c", table.Set("hidden", []byte("q"), 1, randomValue(cell)))
	if err := e.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	gate := e.Server.largeReads
	if !gate.TryReserve(gate.Total()) {
		t.Fatal("memory is reserved without reads")
	}
	type end struct {
		next []byte
		err  error
		most ScanBounds
	}
	ended := make(chan end, 1)
	scan := func() {
		var x end
		x.next, x.err = e.For(&script{visible: Visibility{Families: []uint64{1}}}).Scan(ctx, testTable, Range{}, nil, &x.most, func([]byte, []table.Cell) error { return nil })
		ended <- x
	}
	go scan()
	for gate.TryReserve(0) { // no read waits yet
		time.Sleep(time.Millisecond)
	}
	if err := e.Unload(ctx, lastTablet); err != nil {
		t.Fatal(err)
	}
	gate.Release(gate.Total())
	if x := <-ended; !errors.Is(x.err, api.ErrNotServing) || len(x.next) == 0 || !x.most.Inside || !x.most.Partly {
		t.Errorf("the tablet went while the scan waited: next %q, %+v, %v", x.next, x.most, x.err)
	}
	scan()
	if x := <-ended; !errors.Is(x.err, api.ErrNotServing) || x.most.Inside {
		t.Errorf("the tablet is not here: next %q, %+v, %v", x.next, x.most, x.err)
	}
}
