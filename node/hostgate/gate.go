package hostgate

import (
	"net/netip"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
)

// hostsMax bounds the hosts that a gate counts separately. Requests of further hosts are rejected
// until the next second begins.
const hostsMax = 10_000

// Limits are what a Gate counts, and its bounds.
type Limits struct {
	// RequestsMax and RequestsOfHost bound the requests that are processed at a time.
	RequestsMax, RequestsOfHost int
	// RefusalsMax is the number of refused requests of one host in a second. Its further requests in
	// that second are rejected unread.
	RefusalsMax int
	// Refusal reports whether an error counts as a refused request.
	Refusal func(error) bool
	// TooManyRefusals and TooManyRequests are the texts of the errors.
	TooManyRefusals, TooManyRequests string
}

// Gate bounds the cost of unauthenticated requests per host, so that one host cannot keep others out. It is safe for
// concurrent use.
type Gate struct {
	limits Limits
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		second time.Time
		inside int
		hosts  map[string]*hostCounts
	}
}

// New returns a gate with those limits.
func New(limits Limits) *Gate { return &Gate{limits: limits} }

// hostCounts has the counts of one host.
type hostCounts struct {
	inside  int // requests that are processed
	refused int // in the current second
}

// Enter admits a request of a host. The caller calls leave with the request's error when it is done.
// The error is an *api.OverloadedError.
func (g *Gate) Enter(host string) (leave func(err error), err error) {
	key := networkOf(host)
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.mu.second) >= time.Second {
		g.mu.second = now
		g.forgetLocked()
	}
	h := g.mu.hosts[key]
	switch {
	case h == nil && len(g.mu.hosts) >= hostsMax, h != nil && h.refused >= g.limits.RefusalsMax:
		return nil, &api.OverloadedError{Reason: g.limits.TooManyRefusals, RetryAfter: time.Second}
	case g.mu.inside >= g.limits.RequestsMax, h != nil && h.inside >= g.limits.RequestsOfHost:
		return nil, &api.OverloadedError{Reason: g.limits.TooManyRequests, RetryAfter: 100 * time.Millisecond}
	case h == nil:
		h = &hostCounts{}
		g.mu.hosts[key] = h
	}
	h.inside++
	g.mu.inside++
	return func(err error) { g.leave(h, err) }, nil
}

// forgetLocked resets the counts for a new second.
func (g *Gate) forgetLocked() {
	still := map[string]*hostCounts{}
	for key, h := range g.mu.hosts {
		if h.refused = 0; h.inside > 0 {
			still[key] = h
		}
	}
	g.mu.hosts = still
}

// leave ends a request and counts its refusal.
func (g *Gate) leave(h *hostCounts, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.inside--
	g.mu.inside--
	if err != nil && g.limits.Refusal(err) {
		h.refused++
	}
}

// networkOf returns the address of a host, or of its /64 in IPv6, all of whose addresses one host may use.
func networkOf(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil || a.Unmap().Is4() {
		return host
	}
	p, _ := a.WithZone("").Prefix(64) // of 128 bits
	return p.String()
}
