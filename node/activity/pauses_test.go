package activity

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/api"
)

// TestPauses: only pauses of the last minutes count, and no more are kept than fit into them.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.WatchPauses(ctx, slog.New(slog.DiscardHandler))
		time.Sleep(time.Minute)
		if n, longest := s.Pauses(); n != 0 || longest != 0 {
			t.Errorf("%d pauses of at most %v in a process that runs", n, longest)
		}
		s.pauses.add(time.Now(), 3*time.Second)
		time.Sleep(time.Minute)
		s.pauses.add(time.Now(), time.Second)
		if n, longest := s.Pauses(); n != 2 || longest != 3*time.Second {
			t.Errorf("%d pauses of at most %v, want 2 of 3 s", n, longest)
		}
		time.Sleep((api.RefusalMinutes-1)*time.Minute + time.Second)
		if n, longest := s.Pauses(); n != 1 || longest != time.Second {
			t.Errorf("%d pauses of at most %v, want 1 of 1 s", n, longest)
		}
		for range 10 * pausesKept {
			s.pauses.add(time.Now(), time.Second)
		}
		if n, _ := s.Pauses(); n != int64(pausesKept) || len(s.pauses.recent) != pausesKept {
			t.Errorf("%d pauses are kept, at most %d", n, pausesKept)
		}
	})
}
