package timing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWithProgress: work may take any time, but no longer than the bound between two steps.
func TestWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3 * time.Second
		ctx, progress, stop := WithProgress(t.Context(), most)
		for range 10 {
			time.Sleep(most - time.Millisecond)
			progress()
		}
		if ctx.Err() != nil {
			t.Fatalf("it ended despite progress: %v", context.Cause(ctx))
		}
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took != most || !errors.Is(context.Cause(ctx), ErrStalled) {
			t.Errorf("it ended after %v without progress: %v", took, context.Cause(ctx))
		}
		stop()
		ctx, progress, stop = WithProgress(t.Context(), most)
		stop()
		progress()
		time.Sleep(2 * most)
		if cause := context.Cause(ctx); errors.Is(cause, ErrStalled) || ctx.Err() == nil {
			t.Errorf("after stop: %v, %v", ctx.Err(), cause)
		}
	})
}
