// Package timing has waits that end with a context, and pauses between attempts.
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

// Clock makes timers. It is the part of other packages' clocks that SleepOn needs.
type Clock interface {
	// Timer returns a channel that receives after d, and a function that stops the timer.
	Timer(d time.Duration) (fired <-chan time.Time, stop func())
}

// SleepOn is Sleep by another clock. If d is not positive, it returns ctx's error at once, or nil.
func SleepOn(ctx context.Context, clock Clock, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	fired, stop := clock.Timer(d)
	defer stop()
	select {
	case <-fired:
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
