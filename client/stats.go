package client

import "sync/atomic"

// Stats holds counters of tablet location since Open. Only Tablets is a gauge.
type Stats struct {
	Hits       int64 // rows whose tablet was cached
	Lookups    int64 // lookups
	Shared     int64 // calls that waited for the lookup of another call
	RoundTrips int64 // requests made by lookups
	Stale      int64 // locations that were stale or whose node could not be reached
	Hints      int64 // rejected calls for which the node returned the tablet's location
	Evicted    int64 // locations dropped because LocationsMax was reached
	Tablets    int64 // locations cached now
}

type counters struct{ hits, lookups, shared, roundTrips, stale, hints, evicted atomic.Int64 }

// Stats returns the counters of tablet location.
func (c *Client) Stats() Stats {
	s := &c.locator.stats
	c.locator.mu.Lock()
	tablets := int64(c.locator.mu.count)
	c.locator.mu.Unlock()
	return Stats{
		Hits: s.hits.Load(), Lookups: s.lookups.Load(), Shared: s.shared.Load(), RoundTrips: s.roundTrips.Load(),
		Stale: s.stale.Load(), Hints: s.hints.Load(), Evicted: s.evicted.Load(), Tablets: tablets,
	}
}
