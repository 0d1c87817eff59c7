package lease

import "time"

// Clock is a monotonic clock. Leases and lock-delays depend only on its rate, which must be within
// api.ClockDrift of true time.
type Clock interface {
	// Now returns the time since a fixed moment.
	Now() time.Duration
	// NewTimer returns a timer that fires when d has passed on this clock, or a little later.
	NewTimer(d time.Duration) *time.Timer
}

// systemClock is the machine's monotonic clock.
type systemClock struct{ start time.Time }

// NewClock returns the machine's monotonic clock.
func NewClock() Clock { return systemClock{time.Now()} }

func (c systemClock) Now() time.Duration                   { return time.Since(c.start) }
func (c systemClock) NewTimer(d time.Duration) *time.Timer { return time.NewTimer(d) }
