package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/api"
)

// TestLargeReads: a read reserves a multiple of its bytes, at most everything. Waiting ends with the
// caller's deadline or context, and otherwise as overload.
func TestLargeReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLarge(9<<20, 2*time.Second)
		all, err := l.Reserve(t.Context(), 100<<20)
		if err != nil || all != l.Total() || l.Needs(1<<20) != 3<<20 {
			t.Fatalf("reserved %d of %d, %v", all, l.Total(), err)
		}
		if _, err := l.Reserve(t.Context(), 1); !errors.As(err, new(*api.OverloadedError)) {
			t.Errorf("without memory: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Reserve(short, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an earlier deadline: %v", err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Reserve(canceled, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
		time.AfterFunc(time.Second, func() { l.Release(all) })
		if n, err := l.Reserve(t.Context(), 1<<20); err != nil || n != 3<<20 || !l.TryReserve(6<<20) || l.TryReserve(1) {
			t.Errorf("after a release: %d, %v", n, err)
		}
	})
}

// TestCompactions: compactions wait for memory and for their turn to learn. What exceeds their bound
// is taken from the block cache and returned to it.
func TestCompactions(t *testing.T) {
	const total = 64 << 20
	reads := NewReads(total)
	cache := func() int64 { return reads.Cache().Stats().Budget }
	c := NewCompactions(reads, 8<<20, 4<<20, 0)
	ended, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	cancel(stop)

	release, err := c.Merge(t.Context(), 18<<20)
	if err != nil || cache() != total-10<<20 {
		t.Fatalf("a compaction of huge values: %v, cache %d", err, cache())
	}
	if _, err := c.Merge(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("another beside it: %v", err)
	}
	release()
	if release, err = c.Recover(t.Context(), 6<<20); err != nil || cache() != total-6<<20 {
		t.Fatalf("a load: %v, cache %d", err, cache())
	}
	if _, err := c.Recover(ended, 1); err != stop {
		t.Errorf("another beside it: %v", err)
	}
	release()
	if cache() != total {
		t.Errorf("afterwards the cache has %d", cache())
	}
	if release, err = c.Learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Learn(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("two learn: %v", err)
	}
	release()
	if err := c.WaitToWrite(t.Context(), WriteBurst); err != nil {
		t.Error(err)
	}
}
