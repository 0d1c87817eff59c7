package tablet

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet/sstable"
)

// largeGate bounds the memory of large cells, and of large rows, that are read at the same time: of their blocks, which no cache may
// keep, and of the answers that they go into. A read takes what it has come to need, and one that finds no more begins again with nothing
// in its hands: nobody waits for memory while he holds some.
type largeGate struct {
	free  *semaphore.Weighted
	total int64
	wait  time.Duration
}

func newLargeGate(total int64, wait time.Duration) *largeGate {
	return &largeGate{free: semaphore.NewWeighted(total), total: total, wait: wait}
}

// largeTimes is how many times the bytes of its cells a read is taken to need: their blocks, as stored and decompressed,
// and the answer.
const largeTimes = 3

// needs returns what a read of so many bytes takes. One above all that there is takes that, and so is alone.
func (g *largeGate) needs(bytes int) int64 { return min(largeTimes*int64(bytes), g.total) }

// enter waits for the memory of so many bytes. ctx may tell of its end by Err and Deadline alone. Errors: *api.OverloadedError,
// ctx's.
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

// Enter implements sstable.Gate for a read. Of several files that have a large entry next, as many keep it in memory as is taken for
// the largest; the others keep its key, and read it again when its turn comes.
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

// largeBytes is what the blocks of large entries take at which files stand.
func (r *rows) largeBytes() (held int64) {
	for _, it := range r.iters {
		held += int64(it.LargeBytes())
	}
	return held
}

// hold takes what the read of so many bytes takes more than it has. Errors: errNoRoom, those of enter.
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
		r.leave() // two that had a part each would wait for one another
		if r.turns != nil {
			r.turns.End() // reads that have the memory may wait for a turn
		}
		if r.entered, err = r.gate.enter(r.ctx, bytes); err != nil {
			return err
		}
	}
	r.room = max(r.room, int64(bytes))
	return nil
}

// holdRow is hold for a row of which so many bytes are kept. What is no more than a usual block takes nothing.
func (r *rows) holdRow(bytes int64) error {
	if bytes <= r.room+sstable.GateBytes {
		return nil
	}
	err := r.hold(int(bytes) + sstable.GateBytes)
	if err == errNoRoom {
		r.lacks *= 2 // there may be more of the row: it is not to begin again for each part
	}
	return err
}

// emitted gives back what a scan has taken for a row that is done with, unless it has come to large cells of the next.
func (r *rows) emitted() {
	if r.entered > 0 && r.largeBytes() == 0 {
		r.leave()
	}
}

// errNoRoom ends a try of a read that yields: it is to wait for memory by awaitRoom, and begin again. Meanwhile it has no view,
// and so none of the memtables that are written out while it waits.
var errNoRoom = errors.New("no memory for a large cell at the moment")

// lacksRoom tells whether err is errNoRoom.
func lacksRoom(err error) bool { return err != nil && errors.Is(err, errNoRoom) }

// awaitRoom waits for what the last try lacked, and keeps it for the next. Errors: as enter.
func (r *rows) awaitRoom(ctx context.Context) (err error) {
	if r.entered, err = r.gate.enter(ctx, r.lacks); err == nil {
		r.room = int64(r.lacks)
	}
	return err
}

// leave gives back what the read has taken.
func (r *rows) leave() {
	if r.entered > 0 {
		r.gate.free.Release(r.entered)
	}
	r.entered, r.room = 0, 0
}
