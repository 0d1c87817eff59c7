package timing

import (
	"context"
	"time"
)

// Backoff is a series of pauses between attempts: Min at first, then each twice the one before, at
// most Max. Both must be positive. It has no jitter, so it is for callers that do not fail together
// in large numbers; clients use github.com/cenkalti/backoff. It is not safe for concurrent use.
type Backoff struct {
	Min, Max time.Duration

	last time.Duration
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.Min), b.Max)
	return b.last
}

// Reset makes Min the next pause.
func (b *Backoff) Reset() { b.last = 0 }

// Sleep waits for the next pause, or until ctx ends. It returns nil after the pause, and ctx's error
// if ctx has ended.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.Next()) }
