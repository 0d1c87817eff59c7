package tablet

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/steledb/stele/client/api"
)

// largeGate bounds the memory of large cells that are read at the same time: of their blocks, which no cache may keep, and
// of the answers that they go into. So few reads are in that the bound is passed only by what these meet in one row beside their first
// large block.
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

func (g *largeGate) needs(stored int) int64 { return min(largeTimes*int64(stored), g.total) }

// tryEnter is enter of who does not wait: 0 tells that he would.
func (g *largeGate) tryEnter(stored int) (taken int64) {
	if taken = g.needs(stored); !g.free.TryAcquire(taken) {
		return 0
	}
	return taken
}

// enter waits for the memory of a block. ctx may tell of its end by Err and Deadline alone. Errors: *api.OverloadedError,
// ctx's.
func (g *largeGate) enter(ctx context.Context, stored int) (taken int64, err error) {
	if taken = g.tryEnter(stored); taken > 0 {
		return taken, nil
	}
	taken = g.needs(stored)
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

// Enter implements sstable.Gate for a read. Of several files that have a large entry next, as many keep it in memory as is taken for
// the first; the others keep its key, and read it again when its turn comes.
func (r *rows) Enter(stored int) (err error) {
	switch {
	case r.entered != 0:
	case r.yields:
		if r.entered = r.gate.tryEnter(stored); r.entered == 0 {
			r.lacks = stored
			return errNoRoom
		}
	default:
		if r.entered, err = r.gate.enter(r.ctx, stored); err != nil {
			return err
		}
	}
	held := int64(stored)
	for _, it := range r.iters {
		held += int64(it.LargeBytes())
	}
	if held > r.entered {
		for _, it := range r.iters {
			it.LetGo()
		}
	}
	return nil
}

// errNoRoom ends a try of a read that yields: it is to wait for memory by awaitRoom, and begin again. Meanwhile it has no view,
// and so none of the memtables that are written out while it waits.
var errNoRoom = errors.New("no memory for a large cell at the moment")

// lacksRoom tells whether err is errNoRoom.
func lacksRoom(err error) bool { return err != nil && errors.Is(err, errNoRoom) }

// awaitRoom waits for what the last try lacked, and keeps it for the next. Errors: as enter.
func (r *rows) awaitRoom(ctx context.Context) (err error) {
	r.entered, err = r.gate.enter(ctx, r.lacks)
	return err
}

// leave gives back what the read has taken.
func (r *rows) leave() {
	if r.entered > 0 {
		r.gate.free.Release(r.entered)
		r.entered = 0
	}
}
