package budget

import (
	"context"
	"time"

	"github.com/steledb/stele/client/api"
	"golang.org/x/sync/semaphore"
)

// Large bounds the memory of large cells and large rows that are read at the same time: their
// blocks, which are not cached, and the answers that hold them. A read reserves memory as it needs
// it. If there is not enough, it releases its reservation before it waits, so that reads cannot
// deadlock.
type Large struct {
	free  *semaphore.Weighted
	total int64
	wait  time.Duration
}

// NewLarge returns a budget of total bytes, for which a read waits at most for wait.
func NewLarge(total int64, wait time.Duration) *Large {
	return &Large{free: semaphore.NewWeighted(total), total: total, wait: wait}
}

// LargeTimes is the estimated memory of a read as a multiple of the bytes of its cells: the blocks,
// stored and decompressed, and the answer.
const LargeTimes = 3

// Total returns the bound, in bytes.
func (l *Large) Total() int64 { return l.total }

// Needs returns the memory to reserve for a read of the given bytes. A read above the total
// reserves the total, and so runs alone.
func (l *Large) Needs(bytes int) int64 { return min(LargeTimes*int64(bytes), l.total) }

// TryReserve reserves n bytes if they are free and no read waits.
func (l *Large) TryReserve(n int64) bool { return l.free.TryAcquire(n) }

// Release releases a reservation of n bytes.
func (l *Large) Release(n int64) { l.free.Release(n) }

// Reserve waits for the memory of a read of the given bytes. ctx may report its end by Err and
// Deadline only. Errors: *api.OverloadedError, ctx's.
func (l *Large) Reserve(ctx context.Context, bytes int) (reserved int64, err error) {
	reserved = l.Needs(bytes)
	if l.free.TryAcquire(reserved) {
		return reserved, nil
	}
	until := time.Now().Add(l.wait)
	d, ok := ctx.Deadline()
	ends := ok && d.Before(until)
	if ends {
		until = d
	}
	wait, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if err := l.free.Acquire(wait, reserved); err == nil {
		return reserved, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if ends {
		return 0, context.DeadlineExceeded
	}
	return 0, &api.OverloadedError{Reason: "no memory for large cells", RetryAfter: l.wait / 2}
}
