package timing

import (
	"context"
	"time"
)

// Clock is a monotonic clock. Only differences between its values are meaningful.
type Clock interface {
	// Now returns the time since a fixed moment.
	Now() time.Duration
	// Timer returns a channel that receives a value after d, and a function that stops the timer.
	Timer(d time.Duration) (fired <-chan time.Time, stop func())
}

// systemClock is the system's monotonic clock.
type systemClock struct{ start time.Time }

// SystemClock returns the system's monotonic clock.
func SystemClock() Clock { return systemClock{time.Now()} }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// SleepOn waits for d on a clock, or until ctx ends. It returns ctx's error if ctx has ended.
func SleepOn(ctx context.Context, clock Clock, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	fired, stop := clock.Timer(d)
	defer stop()
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
