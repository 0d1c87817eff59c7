package tablet

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet/sstable"
)

// largeGate bounds the memory of large cells and large rows that are read at the same time: their
// blocks, which are not cached, and the answers that hold them. A read reserves memory as it needs
// it. If there is not enough, it releases all that it holds and starts over: no read waits for
// memory while it holds some.
type largeGate struct {
	free  *semaphore.Weighted
	total int64
	wait  time.Duration
}

func newLargeGate(total int64, wait time.Duration) *largeGate {
	return &largeGate{free: semaphore.NewWeighted(total), total: total, wait: wait}
}

// largeTimes is the estimated memory of a read as a multiple of the bytes of its cells: the blocks,
// stored and decompressed, and the answer.
const largeTimes = 3

// needs returns the memory to reserve for a read of the given bytes. A read above the total
// reserves the total, and so runs alone.
func (g *largeGate) needs(bytes int) int64 { return min(largeTimes*int64(bytes), g.total) }

// enter waits for the memory of a read of the given bytes. ctx may report its end by Err and
// Deadline only. Errors: *api.OverloadedError, ctx's.
func (g *largeGate) enter(ctx context.Context, bytes int) (taken int64, err error) {
	taken = g.needs(bytes)
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

// Enter implements sstable.Gate for a read. If several files have a large entry next, they hold as
// many in memory as fit the reservation for the largest. The others keep only the key, and load the
// entry again when its turn comes.
func (r *rows) Enter(bytes int) error {
	if err := r.hold(bytes); err != nil {
		return err
	}
	if int64(bytes)+r.largeBytes() > r.entered {
		for _, it := range r.iters {
			it.LetGo()
		}
	}
	return nil
}

// largeBytes returns the memory of the blocks of large entries that the iterators hold.
func (r *rows) largeBytes() (held int64) {
	for _, it := range r.iters {
		held += int64(it.LargeBytes())
	}
	return held
}

// hold extends the reservation to that of a read of the given bytes. Errors: errNoRoom, those of
// enter.
func (r *rows) hold(bytes int) (err error) {
	more := r.gate.needs(bytes) - r.entered
	switch {
	case more <= 0:
	case r.gate.free.TryAcquire(more):
		r.entered += more
	case r.yields:
		r.lacks = bytes
		return errNoRoom
	default:
		// two reads that held a part each would wait for each other
		r.leave()
		if r.turns != nil {
			r.turns.End() // reads that hold the memory may wait for a turn
		}
		if r.entered, err = r.gate.enter(r.ctx, bytes); err != nil {
			return err
		}
	}
	r.room = max(r.room, int64(bytes))
	return nil
}

// holdRow is hold for a row of which the given bytes are kept. Up to the size of a usual block it
// reserves nothing.
func (r *rows) holdRow(bytes int64) error {
	if bytes <= r.room+sstable.GateBytes {
		return nil
	}
	err := r.hold(int(bytes) + sstable.GateBytes)
	if err == errNoRoom {
		r.lacks *= 2 // the row may have more: do not start over for each part
	}
	return err
}

// emitted releases the reservation of a scan for a finished row, unless it has reached large cells
// of the next.
func (r *rows) emitted() {
	if r.entered > 0 && r.largeBytes() == 0 {
		r.leave()
	}
}

// errNoRoom ends an attempt of a read that yields: it waits for memory in awaitRoom and starts
// over. Meanwhile it holds no view, and so no memtables that are written out while it waits.
var errNoRoom = errors.New("no memory for a large cell")

// lacksRoom reports whether err is errNoRoom.
func lacksRoom(err error) bool { return err != nil && errors.Is(err, errNoRoom) }

// awaitRoom waits for the memory that the last attempt lacked, and keeps it for the next. Errors:
// as enter.
func (r *rows) awaitRoom(ctx context.Context) (err error) {
	if r.entered, err = r.gate.enter(ctx, r.lacks); err == nil {
		r.room = int64(r.lacks)
	}
	return err
}

// leave releases the read's reservation.
func (r *rows) leave() {
	if r.entered > 0 {
		r.gate.free.Release(r.entered)
	}
	r.entered, r.room = 0, 0
}
