package timing

import (
	"sync/atomic"
	"time"
)

// leaseClock is the system's monotonic clock, plus the time for which the machine was suspended since the clock was made: the monotonic clock stands
// still then, while other machines go on. Only a system call returns that time. A suspension also moves the wall clock ahead of the monotonic clock, and
// both are read at once, without a call. So the call is made only after the wall clock has moved, by a suspension or because it was set.
type leaseClock struct {
	// read returns the wall clock's time, and the time since the clock was made without suspensions.
	read func() (wall, running time.Duration)
	// asleep returns for how long the machine was suspended since a fixed moment.
	asleep func() time.Duration
	before time.Duration // the result of asleep when the clock was made

	ahead     atomic.Int64 // how far the wall clock was ahead of the monotonic clock when asleep was called last
	suspended atomic.Int64 // since the clock was made; it only grows
}

// wallSlack is how far the wall clock may move before it is taken for a suspension. It is small beside each lease.
const wallSlack = time.Millisecond

// LeaseClock returns a monotonic clock that also counts the time for which the machine is suspended. Its timers do not.
func LeaseClock() Clock {
	start := time.Now()
	return newLeaseClock(func() (wall, running time.Duration) {
		now := time.Now()
		return time.Duration(now.UnixNano()), now.Sub(start)
	}, asleep)
}

func newLeaseClock(read func() (wall, running time.Duration), asleep func() time.Duration) *leaseClock {
	c := &leaseClock{read: read, asleep: asleep, before: asleep()}
	wall, running := read()
	c.ahead.Store(int64(wall - running))
	return c
}

// Now implements Clock.
func (c *leaseClock) Now() time.Duration {
	wall, running := c.read()
	if moved := wall - running - time.Duration(c.ahead.Load()); moved > wallSlack || moved < -wallSlack {
		c.look(wall - running)
	}
	return running + time.Duration(c.suspended.Load())
}

// look finds out for how long the machine was suspended.
func (c *leaseClock) look(ahead time.Duration) {
	suspended := int64(c.asleep() - c.before)
	for old := c.suspended.Load(); suspended > old && !c.suspended.CompareAndSwap(old, suspended); {
		old = c.suspended.Load()
	}
	c.ahead.Store(int64(ahead)) // after suspended, for other callers of Now
}

// Timer implements Clock.
func (c *leaseClock) Timer(d time.Duration) (<-chan time.Time, func()) {
	return systemClock{}.Timer(d)
}
