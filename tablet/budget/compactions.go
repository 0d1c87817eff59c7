package budget

import (
	"context"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// WriteBurst is the number of bytes that compactions may write at once after writing nothing for a
// while: two writes of sstable.Writer. With 32 MiB each compaction began by keeping a processor
// from reads for 60 ms.
const WriteBurst = 512 << 10

// Compactions bounds what merging and major compactions use together, and loads of sorted runs. What
// one of them needs beyond its share is taken from the memory for reads.
type Compactions struct {
	reads      *Reads
	mergeMax   int64
	merge      *semaphore.Weighted
	recover    *semaphore.Weighted
	recoverMax int64
	learn      *semaphore.Weighted // one holder at a time
	rate       *rate.Limiter       // bytes written
}

// NewCompactions returns a budget of mergeMax bytes for compactions and recoverMax for loads, whose
// compactions write bytesPerSecond; none or a negative number means no bound.
func NewCompactions(reads *Reads, mergeMax, recoverMax, bytesPerSecond int64) *Compactions {
	c := &Compactions{
		reads: reads, mergeMax: mergeMax, merge: semaphore.NewWeighted(mergeMax),
		recoverMax: recoverMax, recover: semaphore.NewWeighted(recoverMax),
		learn: semaphore.NewWeighted(1), rate: rate.NewLimiter(rate.Inf, 0),
	}
	if bytesPerSecond > 0 {
		c.rate = rate.NewLimiter(rate.Limit(bytesPerSecond), WriteBurst)
	}
	return c
}

// Merge acquires the given memory for a compaction. The block cache shrinks by what exceeds the
// bound of all compactions.
func (c *Compactions) Merge(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, c.mergeMax)
	if err := c.merge.Acquire(ctx, share); err != nil {
		return nil, err
	}
	c.reads.AddWorking(bytes - share)
	return func() {
		c.reads.AddWorking(share - bytes)
		c.merge.Release(share)
	}, nil
}

// Recover acquires the given memory for a load of sorted runs. A load that needs more than the bound
// runs alone. The block cache shrinks by all of it.
func (c *Compactions) Recover(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, c.recoverMax)
	if err := c.recover.Acquire(ctx, share); err != nil {
		return nil, context.Cause(ctx)
	}
	c.reads.AddWorking(bytes)
	return func() {
		c.reads.AddWorking(-bytes)
		c.recover.Release(share)
	}, nil
}

// Learn waits until no other compaction learns. The caller must call release when it has finished.
func (c *Compactions) Learn(ctx context.Context) (release func(), err error) {
	if err := c.learn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { c.learn.Release(1) }, nil
}

// WaitToWrite waits until a compaction may write n bytes, WriteBurst at most.
func (c *Compactions) WaitToWrite(ctx context.Context, n int) error { return c.rate.WaitN(ctx, n) }
