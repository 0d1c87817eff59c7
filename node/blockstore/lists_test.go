package blockstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
)

// A question to the lock service outlasts an outage, and nothing else.
func TestUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		silent := func(ctx context.Context) error {
			switch d := time.Since(start); {
			case d < 20*time.Second:
				<-ctx.Done()
				return ctx.Err()
			case d < 30*time.Second:
				return &metaapi.NotLeaderError{}
			}
			return nil
		}
		if err := untilAnswered(t.Context(), silent); err != nil || time.Since(start) < 30*time.Second || time.Since(start) > 31*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		other := errors.New("other")
		if err := untilAnswered(t.Context(), func(context.Context) error { return other }); err != other {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		start = time.Now()
		if err := untilAnswered(ctx, silent); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 12*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
