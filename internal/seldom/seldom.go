// Package seldom keeps logs readable, and disks free, of warnings that strangers can cause as often as they like.
package seldom

import (
	"log/slog"
	"sync"
	"time"
)

// A Warner says Most warnings in a Period. How many more there were says its next one.
const (
	Most   = 20
	Period = time.Minute
)

// Warner says warnings of one kind. The zero Warner is ready; it may be used by many goroutines.
type Warner struct {
	mu     sync.Mutex
	since  time.Time // of the period
	said   int       // in it
	unsaid int       // since the last that was said
}

// Warn says msg, or counts it.
func (w *Warner) Warn(log *slog.Logger, msg string, args ...any) {
	say, unsaid := w.take()
	if !say {
		return
	}
	if unsaid > 0 {
		args = append(args, "unsaid_before", unsaid)
	}
	log.Warn(msg, args...)
}

func (w *Warner) take() (say bool, unsaid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.since.IsZero() || now.Sub(w.since) >= Period {
		w.since, w.said = now, 0
	}
	if w.said++; w.said > Most {
		w.unsaid++
		return false, 0
	}
	unsaid, w.unsaid = w.unsaid, 0
	return true, unsaid
}
