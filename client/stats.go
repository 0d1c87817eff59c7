package client

import "sync/atomic"

// Stats tell how a Client finds tablets. All but Tablets are counts since Open.
type Stats struct {
	Hits       int64 // times that a row's tablet was known
	Lookups    int64 // times that it was looked up
	Shared     int64 // times that a call waited for a lookup of another
	RoundTrips int64 // requests that lookups made
	Stale      int64 // locations that proved wrong, or could not be reached
	Hints      int64 // times that a node which did not have a tablet told who has
	Evicted    int64 // locations that were dropped for want of room
	Tablets    int64 // tablets whose location is known now
}

type counters struct{ hits, lookups, shared, roundTrips, stale, hints, evicted atomic.Int64 }

// Stats returns counts of how tablets were found.
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
