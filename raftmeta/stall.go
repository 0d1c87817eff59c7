package raftmeta

import (
	"sync"
	"time"
)

// stallWatch calls expire unless it is stopped in time. It counts the time in
// quarters, each a timer of its own: a process that was itself stopped and goes
// on finds one timer due, not four, and does not blame the disk.
type stallWatch struct {
	mu      sync.Mutex
	timer   *time.Timer
	left    int
	quarter time.Duration
	expire  func()
}

const stallTicks = 4

func watchStall(after time.Duration, expire func()) *stallWatch {
	w := &stallWatch{left: stallTicks, quarter: after / stallTicks, expire: expire}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.quarter, w.tick)
	return w
}

func (w *stallWatch) tick() {
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

// stop ends the watch. expire has either returned or will not be called.
func (w *stallWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = 0
	w.timer.Stop()
}
