package raftmeta

import "time"

// Clock is a monotonic clock. Leases and lock-delays depend only on its rate, which must be within
// api.ClockDrift of true time.
type Clock interface {
	// Now returns the time since a fixed moment.
	Now() time.Duration
	// NewTimer returns a timer that fires when d has passed on this clock, or a little later.
	NewTimer(d time.Duration) *time.Timer
}

// machineClock is the machine's monotonic clock.
type machineClock struct{ start time.Time }

func newMachineClock() Clock { return machineClock{time.Now()} }

func (c machineClock) Now() time.Duration                   { return time.Since(c.start) }
func (c machineClock) NewTimer(d time.Duration) *time.Timer { return time.NewTimer(d) }
