package timing

import (
	"context"
	"errors"
	"time"
)

// ErrStalled is the cause of the end of a context of WithProgress without progress.
var ErrStalled = errors.New("no progress in time")

// WithProgress returns a context that ends when progress has not been called for most, with the cause ErrStalled. It bounds work whose total time
// grows with its size. stop releases its timer and ends the context.
func WithProgress(parent context.Context, most time.Duration) (ctx context.Context, progress, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(most, func() { cancel(ErrStalled) })
	return ctx, func() { timer.Reset(most) }, func() {
		timer.Stop()
		cancel(nil)
	}
}
