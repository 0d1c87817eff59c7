package node

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/fair"
)

// resultWait is how long a call waits for memory before it is told that the node is
// overloaded.
const resultWait = 2 * time.Second

// resultMemory bounds the results that are built in memory before they are sent: a
// thousand scans of large batches at a time would take all that the node has. Users share it: answers that one does not
// read keep others' waiting no longer than it takes to disconnect the one that has all.
type resultMemory struct {
	free *fair.Memory
	all  int64
	max  int64 // that a batch may take
	// crowded has those give way who hardly take their answers, until over is called.
	crowded func() (over func())
}

func newResultMemory(bytes int64) resultMemory {
	most := bytes / 4
	return resultMemory{free: fair.NewMemory(4 * most), all: 4 * most, max: most} // so that four of the largest are all of it
}

// batch returns how many bytes a batch of want may have. One counts twice: as it is
// built, and as it is sent.
func (m *resultMemory) batch(want int) int { return min(want, int(m.max/2)) }

// take waits for the memory of a result of that many bytes for a user, and returns what gives
// it back. The error is *api.OverloadedError, or ctx's.
func (m *resultMemory) take(ctx context.Context, user string, bytes int) (release func(), err error) {
	r := answerRoom{of: m, user: user, copies: 2}
	if err := r.await(ctx, bytes); err != nil {
		return nil, err
	}
	return r.giveBack, nil
}

// acquire waits for memory of that weight, as take does.
func (m *resultMemory) acquire(ctx context.Context, user string, weight int64) error {
	if m.free.Try(user, weight) {
		return nil
	}
	wait, cancel := within(ctx, resultWait)
	defer cancel()
	defer m.crowded()()
	if m.free.Acquire(wait, user, weight) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) { // its timer is as late as ours, or later
		return context.DeadlineExceeded
	}
	return &api.OverloadedError{Reason: "no memory for results", RetryAfter: resultWait / 2}
}

// within returns a context that ends after d, or with ctx, which may tell of its end by Err and Deadline alone.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	until := time.Now().Add(d)
	if at, ok := ctx.Deadline(); ok && at.Before(until) {
		until = at
	}
	inner, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	stop := context.AfterFunc(ctx, cancel)
	return inner, func() { stop(); cancel() }
}

// refusesWrites tells whether err, with which a write was refused after it had
// waited, is what the next write would get.
func refusesWrites(err error) bool {
	return errors.Is(err, api.ErrOverloaded) || errors.Is(err, api.ErrDiskFull) || errors.Is(err, blobfs.ErrDiskFull)
}

// callContext ends reads in a row whose caller has given up. It takes no timer and
// no goroutine, which would cost a read of one row as much as the row.
type callContext struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (c callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Err implements context.Context, by looking at the clock.
func (c callContext) Err() error {
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
