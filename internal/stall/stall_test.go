package stall

import (
	"testing"
	"testing/synctest"
	"time"
)

// What is not stopped in time is told of once.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := 0
		w := After(4*time.Second, func() { expired++ })
		time.Sleep(4*time.Second - 1)
		synctest.Wait()
		if expired != 0 {
			t.Error("before its time")
		}
		time.Sleep(time.Minute)
		w.Stop()
		if expired != 1 {
			t.Errorf("%d times", expired)
		}
	})
}

// TestWatchForgivesAPause ticks as a process does that was stopped for
// long: one timer is due when it goes on, and the write is done by then.
func TestWatchForgivesAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := false
		w := After(4*time.Second, func() { expired = true })
		w.tick() // what the runtime runs on waking up, however late
		w.Stop()
		time.Sleep(time.Minute)
		if expired {
			t.Error("expired")
		}
		w.tick() // a timer that fired just before it was stopped
		if expired {
			t.Error("expired after stop")
		}
	})
}
