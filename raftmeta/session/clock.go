package session

import "time"

// Clock measures leases. Only its rate matters, which may be wrong by api.ClockDrift. It must not
// stop while the program can still act.
type Clock interface {
	// Now returns the time since a fixed moment.
	Now() time.Duration
	// Timer returns a channel that receives after d, and a function that stops the timer.
	Timer(d time.Duration) (fired <-chan time.Time, stop func())
}

// systemClock is the machine's monotonic clock. It stops while the machine is suspended. If
// machines are suspended, the application must provide a Clock that does not stop.
type systemClock struct{ start time.Time }

func newSystemClock() Clock { return systemClock{time.Now()} }

func (c systemClock) Now() time.Duration { return time.Since(c.start) }

func (c systemClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
