// Package results bounds the memory of results between being built and being sent. Users share it fairly. It starts no goroutine.
package results

import (
	"context"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/fair"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/trace"
)

// ResultWait is how long a call waits for result memory before it fails with api.OverloadedError.
const ResultWait = 2 * time.Second

// Memory bounds the memory of results between being built and being sent: a thousand concurrent scans with large batches
// would exhaust the node. Users share it. A client that holds it all and does not read its answers is disconnected before others
// wait for long.
type Memory struct {
	Free *fair.Memory // the memory, for tests that take some of it
	All  int64        // its size
	max  int64        // Of one batch
	// Crowded has slow readers disconnected until over is called.
	Crowded func() (over func())
}

// New returns a memory of so many bytes.
func New(bytes int64) Memory {
	most := bytes / 4
	return Memory{Free: fair.NewMemory(4 * most), All: 4 * most, max: most} // a multiple of four of the largest batches
}

// Batch returns the size of a batch for which want bytes were requested. A batch counts twice: while it is built, and while it is
// sent.
func (m *Memory) Batch(want int) int { return min(want, int(m.max/2)) }

// Take waits for the memory of a result and returns the function that releases it. The error is *api.OverloadedError, or that of
// ctx.
func (m *Memory) Take(ctx context.Context, user string, bytes int) (release func(), err error) {
	r := Answer{Of: m, User: user, Copies: 2}
	if err := r.Await(ctx, bytes); err != nil {
		return nil, err
	}
	return r.Release, nil
}

// acquire waits for memory of that weight. The errors are those of Take.
func (m *Memory) acquire(ctx context.Context, user string, weight int64, traced *trace.Record) error {
	if m.Free.Try(user, weight) {
		return nil
	}
	defer traced.Since(trace.AnswerSpace, traced.Now())
	wait, cancel := timing.Within(ctx, ResultWait)
	defer cancel()
	defer m.Crowded()()
	if m.Free.Acquire(wait, user, weight) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) { // its timer has not fired yet
		return context.DeadlineExceeded
	}
	return &api.OverloadedError{Reason: "no memory for results", RetryAfter: ResultWait / 2}
}
