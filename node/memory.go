package node

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
)

// resultWait is how long a call waits for memory before it is told that the node is
// overloaded.
const resultWait = 2 * time.Second

// resultMemory bounds the results that are built in memory before they are sent: a
// thousand scans of large batches at a time would take all that the node has.
type resultMemory struct {
	free *semaphore.Weighted
	max  int64 // that one call may take
	// crowded has those give way who hardly take their answers, until over is called.
	crowded func() (over func())
}

func newResultMemory(bytes int64) resultMemory {
	most := bytes / 4
	return resultMemory{free: semaphore.NewWeighted(4 * most), max: most} // so that four of the largest are all of it
}

// batch returns how many bytes a batch of want may have. One counts twice: as it is
// built, and as it is sent.
func (m *resultMemory) batch(want int) int { return min(want, int(m.max/2)) }

// take waits for the memory of a result of that many bytes, and returns what gives
// it back. The error is *api.OverloadedError, or ctx's.
func (m *resultMemory) take(ctx context.Context, bytes int) (release func(), err error) {
	weight := min(2*int64(bytes), m.max)
	if !m.free.TryAcquire(weight) {
		wait, cancel := context.WithTimeout(ctx, resultWait)
		defer cancel()
		defer m.crowded()()
		if err := m.free.Acquire(wait, weight); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &api.OverloadedError{Reason: "no memory for results", RetryAfter: resultWait / 2}
		}
	}
	return func() { m.free.Release(weight) }, nil
}

// takeAnswer takes the memory of an answer of which the encoded size is known, until it has been sent. The answer to c must
// follow, whatever is returned. Small answers take nothing, and so never wait: the connections' buffers are bounded.
func (m *resultMemory) takeAnswer(ctx context.Context, c *rpc.Call, bytes int) (mayWait bool, err error) {
	if bytes <= smallAnswerBytes {
		return false, nil
	}
	release, err := m.take(ctx, (bytes+1)/2) // it is built as it is sent
	if err == nil {
		c.OnSent(release)
	}
	return true, err
}

// smallAnswerBytes is what a call answers without asking for memory.
const smallAnswerBytes = 64 << 10

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
