// Package stall tells when a disk does not come back: nothing can be called off that waits for one, so it is watched from outside.
// It stands for no section of the paper. A Watch has a timer's goroutine, which runs what the caller gave.
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
