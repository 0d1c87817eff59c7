package timing

import (
	"context"
	"sync"
	"time"
)

// While returns a context that ends when ok, which is called each period, returns false. stop ends it, and returns when ok is no longer called.
func While(parent context.Context, period time.Duration, ok func() bool) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel()
		for ok() && Sleep(ctx, period) == nil {
		}
	})
	return ctx, func() {
		cancel()
		watch.Wait()
	}
}
