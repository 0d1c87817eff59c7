package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// Of reads of large cells so many are under way at once as there is memory for; the others wait, and are refused when they
// have waited for long enough or their time is up. Reads of small rows are not held up (I13).
func TestLargeReadsTakeTurns(t *testing.T) {
	const cell = 1 << 20
	e := newEnv(t, Config{RowReadBytesMax: 2*largeTimes*cell + cell, OverloadWait: 300 * time.Millisecond}, "f:compression=none")
	for i := range 8 {
		e.mustApply(fmt.Sprintf("large%d", i), table.Set("f", []byte("q"), 1, randomValue(cell)))
	}
	e.mustApply("small", table.Set("f", []byte("q"), 1, []byte("v")))
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	var in, most atomic.Int64
	var done, refused, late atomic.Int64
	leave := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx, cancel := context.Background(), func() {}
			if i == 7 {
				for in.Load() < 2 { // it is not among the first
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
	for end := time.Now().Add(10 * time.Second); refused.Load()+late.Load() < 6 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got := e.read("small", nil); len(got) != 1 {
			t.Fatalf("%q", got)
		}
	}
	close(leave)
	wg.Wait()
	if most.Load() != 2 || done.Load() != 2 || refused.Load() != 5 || late.Load() != 1 {
		t.Errorf("at most %d at once, %d done, %d refused, %d late", most.Load(), done.Load(), refused.Load(), late.Load())
	}
	for i := range 8 {
		if got := e.read(fmt.Sprintf("large%d", i), nil); len(got) != 1 {
			t.Errorf("large%d afterwards: %q", i, got)
		}
	}
	if !e.large.free.TryAcquire(e.large.total) {
		t.Error("memory is taken, and nobody reads")
	}
}
