package bench

import (
	"context"
	"time"
)

// A pace is the number of clients, the rows per call, and the call rate.
type pace struct {
	clients, batch int
	rate           float64 // rows per second of all clients together; 0 for unlimited
}

func (c *Config) pace(batch int) pace { return pace{c.Clients, batch, c.Rate} }

// due waits until a client's next call is due, given the number of its calls so far, and returns
// the time at which it was due.
func (p pace) due(ctx context.Context, began time.Time, client int, calls int64) time.Time {
	if p.rate == 0 {
		return time.Now()
	}
	turn := calls*int64(p.clients) + int64(client)
	at := began.Add(time.Duration(float64(turn) * float64(p.batch) / p.rate * float64(time.Second)))
	if wait := time.Until(at); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return at
}
