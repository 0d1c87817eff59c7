// Package timing has waits that end with a context, pauses between attempts, and clocks that tests can replace.
package timing

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It returns nil after d, and ctx's error if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Within returns a context that ends after d, or with ctx. Of ctx it uses Err, Done and Deadline: the deadline alone ends it, even if ctx
// has no timer of its own. It carries ctx's values, but not its cause.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	until := time.Now().Add(d)
	if at, ok := ctx.Deadline(); ok && at.Before(until) {
		until = at
	}
	inner, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	stop := context.AfterFunc(ctx, cancel)
	return inner, func() { stop(); cancel() }
}
