// Package stall detects stalled disk operations. Such an operation cannot be cancelled, so a timer
// watches it from outside and runs a function of the caller.
package stall

import (
	"sync"
	"time"
)

// Watch calls expire unless it is stopped in time. It measures the time in quarters, each with its
// own timer. If the whole process was suspended, only one timer is due when it resumes, so the disk
// is not blamed.
type Watch struct {
	mu      sync.Mutex
	timer   *time.Timer
	left    int
	quarter time.Duration
	expire  func()
}

const ticks = 4

// After starts a watch of duration long. Stop must be called. expire must not block for long.
func After(long time.Duration, expire func()) *Watch {
	w := &Watch{left: ticks, quarter: long / ticks, expire: expire}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.quarter, w.tick)
	return w
}

func (w *Watch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 {
		return
	}
	w.left--
	if w.left > 0 {
		w.timer.Reset(w.quarter)
		return
	}
	w.expire()
}

// Stop ends the watch. expire has either returned or will not be called.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = 0
	w.timer.Stop()
}
