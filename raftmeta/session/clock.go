package session

import "time"

// Clock is what leases are measured with. Only its rate matters, which may be wrong
// by api.ClockDrift; it must not stop while the program can still act.
type Clock interface {
	// Now returns the time since a moment that stays the same.
	Now() time.Duration
	// Timer returns a channel that gets a value after d, and what ends it before.
	Timer(d time.Duration) (fired <-chan time.Time, stop func())
}

// systemClock is the machine's monotonic clock. It stands still while the machine is
// suspended: whoever suspends machines must give a Clock that does not.
type systemClock struct{ start time.Time }

func newSystemClock() Clock { return systemClock{time.Now()} }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
