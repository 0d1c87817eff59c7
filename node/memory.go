package node

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/fair"
	"github.com/steledb/stele/internal/timing"
)

// resultWait is how long a call waits for result memory before it fails with api.OverloadedError.
const resultWait = 2 * time.Second

// resultMemory bounds the memory of results between being built and being sent: a thousand concurrent scans with large batches
// would exhaust the node. Users share it. A client that holds it all and does not read its answers is disconnected before others
// wait for long.
type resultMemory struct {
	free *fair.Memory
	all  int64
	max  int64 // of one batch
	// crowded has slow readers disconnected until over is called.
	crowded func() (over func())
}

func newResultMemory(bytes int64) resultMemory {
	most := bytes / 4
	return resultMemory{free: fair.NewMemory(4 * most), all: 4 * most, max: most} // a multiple of four of the largest batches
}

// batch returns the size of a batch for which want bytes were requested. A batch counts twice: while it is built, and while it is
// sent.
func (m *resultMemory) batch(want int) int { return min(want, int(m.max/2)) }

// take waits for the memory of a result and returns the function that releases it. The error is *api.OverloadedError, or that of
// ctx.
func (m *resultMemory) take(ctx context.Context, user string, bytes int) (release func(), err error) {
	r := answerMemory{of: m, user: user, copies: 2}
	if err := r.await(ctx, bytes); err != nil {
		return nil, err
	}
	return r.release, nil
}

// acquire waits for memory of that weight. The errors are those of take.
func (m *resultMemory) acquire(ctx context.Context, user string, weight int64) error {
	if m.free.Try(user, weight) {
		return nil
	}
	wait, cancel := timing.Within(ctx, resultWait)
	defer cancel()
	defer m.crowded()()
	if m.free.Acquire(wait, user, weight) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) { // its timer has not fired yet
		return context.DeadlineExceeded
	}
	return &api.OverloadedError{Reason: "no memory for results", RetryAfter: resultWait / 2}
}

// refusesWrites reports whether err, with which a write was refused after waiting, would also be the result of the next write.
func refusesWrites(err error) bool {
	return errors.Is(err, api.ErrOverloaded) || errors.Is(err, api.ErrDiskFull) || errors.Is(err, blobfs.ErrDiskFull)
}

// callContext ends the reads of a call whose deadline has passed. It needs no timer and no goroutine, which would cost a
// single-row read as much as the read itself.
type callContext struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (c callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Err implements context.Context by comparing with the clock.
func (c callContext) Err() error {
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
