package stall

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch: a watch that is not stopped in time expires once.
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

// TestWatchForgivesAPause ticks like a process that was suspended for long: one timer is due when
// it resumes, and the write completes by then.
func TestWatchForgivesAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := false
		w := After(4*time.Second, func() { expired = true })
		w.tick() // the late timer after the process resumes
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
