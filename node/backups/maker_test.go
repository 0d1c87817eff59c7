package backups

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestRetriesOfBackups makes work fail for makingMax. Each call must be makerRetry after the one before, or after a request that woke it.
func TestRetriesOfBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), makingMax)
		defer stop()
		s, calls := &Service{wake: make(chan struct{}, 1)}, 0
		const requests = 10
		for i := range requests {
			time.AfterFunc(time.Duration(i)*time.Second, s.nudge)
		}
		repeat(ctx, s.wake, func() bool { calls++; return false })
		if most := requests + int(makingMax/makerRetry); calls > most {
			t.Errorf("work that fails was called %d times in %v, want at most %d", calls, makingMax, most)
		}
	})
}
