// Package loglimit is a rate-limited log of warnings that unauthenticated peers can cause, so that
// they can neither flood the log nor fill the disk.
package loglimit

import (
	"log/slog"
	"sync"
	"time"
)

// A Warner logs at most Most warnings per Period. The next warning after that reports the number
// suppressed.
const (
	Most   = 20
	Period = time.Minute
)

// Warner is a rate-limited log of one kind of warning. The zero Warner is ready for use. It is safe
// for concurrent use.
type Warner struct {
	mu         sync.Mutex
	since      time.Time // start of the period
	logged     int       // warnings in the period
	suppressed int       // warnings suppressed since the last one logged
}

// Warn logs msg, or only counts it if the period's limit is reached.
func (w *Warner) Warn(log *slog.Logger, msg string, args ...any) {
	ok, suppressed := w.take()
	if !ok {
		return
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	log.Warn(msg, args...)
}

func (w *Warner) take() (ok bool, suppressed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.since.IsZero() || now.Sub(w.since) >= Period {
		w.since, w.logged = now, 0
	}
	if w.logged++; w.logged > Most {
		w.suppressed++
		return false, 0
	}
	suppressed, w.suppressed = w.suppressed, 0
	return true, suppressed
}
