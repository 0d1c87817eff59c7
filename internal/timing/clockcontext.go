package timing

import (
	"context"
	"time"
)

// ClockContext is a context that compares its deadline with the clock at each call of Err. It needs no timer and no goroutine, which
// would cost the read of a row as much as the read itself; so its Done is not closed when the deadline passes.
type ClockContext struct {
	context.Context
	Until time.Time // zero for no deadline
}

// Deadline implements context.Context.
func (c ClockContext) Deadline() (time.Time, bool) { return c.Until, !c.Until.IsZero() }

// Err implements context.Context by comparing with the clock.
func (c ClockContext) Err() error {
	if !c.Until.IsZero() && !time.Now().Before(c.Until) {
		return context.DeadlineExceeded
	}
	return nil
}
