package tablet

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/steledb/stele/client/api"
)

// largeGate bounds the memory of large cells that are read at the same time: of their blocks, which no cache may keep, and
// of the answers that they go into. A read that has come in takes what it needs; so few are in that the bound is
// passed by what these meet beside their first large block only.
type largeGate struct {
	free  *semaphore.Weighted
	total int64
	wait  time.Duration
}

func newLargeGate(total int64, wait time.Duration) *largeGate {
	return &largeGate{free: semaphore.NewWeighted(total), total: total, wait: wait}
}

// largeTimes is how many times the stored bytes of a block a read is taken to need: the block, which may be
// compressed, and the answer.
const largeTimes = 3

// enter waits for the memory of a block. ctx may tell of its end by Err and Deadline alone. Errors: *api.OverloadedError,
// ctx's.
func (g *largeGate) enter(ctx context.Context, stored int) (taken int64, err error) {
	taken = min(largeTimes*int64(stored), g.total)
	if g.free.TryAcquire(taken) {
		return taken, nil
	}
	until := time.Now().Add(g.wait)
	d, ok := ctx.Deadline()
	ends := ok && d.Before(until)
	if ends {
		until = d
	}
	wait, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if err := g.free.Acquire(wait, taken); err == nil {
		return taken, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if ends {
		return 0, context.DeadlineExceeded
	}
	return 0, &api.OverloadedError{Reason: "no memory for large cells", RetryAfter: g.wait / 2}
}

// Enter implements sstable.Gate for a read.
func (r *rows) Enter(stored int) (err error) {
	if r.entered == 0 {
		r.entered, err = r.gate.enter(r.ctx, stored)
	}
	return err
}

// leave gives back what the read has taken.
func (r *rows) leave() {
	if r.entered > 0 {
		r.gate.free.Release(r.entered)
		r.entered = 0
	}
}
