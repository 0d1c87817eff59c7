package timing

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhile: the context ends within a period after ok returns false, and at once when it is stopped.
func TestWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Bool
		ctx, stop := While(t.Context(), time.Second, func() bool { return !over.Load() })
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Error("it ended although ok returns true")
		}
		over.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it goes on although ok returns false")
		}
		stop()
		ctx, stop = While(t.Context(), time.Second, func() bool { return true })
		if stop(); ctx.Err() == nil {
			t.Error("it goes on although it was stopped")
		}
	})
}
