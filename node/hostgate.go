package node

import (
	"net/netip"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
)

// gateHostsMax bounds the hosts that a gate counts separately. Requests of further hosts are rejected
// until the next second begins.
const gateHostsMax = 10_000

// gateLimits are what a hostGate counts, and its bounds.
type gateLimits struct {
	// requestsMax and requestsOfHost bound the requests that are processed at a time.
	requestsMax, requestsOfHost int
	// refusalsMax is the number of refused requests of one host in a second. Its further requests in
	// that second are rejected unread.
	refusalsMax int
	// refusal reports whether an error counts as a refused request.
	refusal func(error) bool
	// tooManyRefusals and tooManyRequests are the texts of the errors.
	tooManyRefusals, tooManyRequests string
}

// hostGate bounds the cost of unauthenticated requests per host, so that one host cannot keep others out.
type hostGate struct {
	limits gateLimits
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		second time.Time
		inside int
		hosts  map[string]*gateHost
	}
}

// gateHost has the counts of one host.
type gateHost struct {
	inside  int // requests that are processed
	refused int // in the current second
}

// enter admits a request of a host. The caller calls leave with the request's error when it is done.
// The error is an *api.OverloadedError.
func (g *hostGate) enter(host string) (leave func(err error), err error) {
	key := networkOf(host)
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.mu.second) >= time.Second {
		g.mu.second = now
		g.forgetLocked()
	}
	h := g.mu.hosts[key]
	switch {
	case h == nil && len(g.mu.hosts) >= gateHostsMax, h != nil && h.refused >= g.limits.refusalsMax:
		return nil, &api.OverloadedError{Reason: g.limits.tooManyRefusals, RetryAfter: time.Second}
	case g.mu.inside >= g.limits.requestsMax, h != nil && h.inside >= g.limits.requestsOfHost:
		return nil, &api.OverloadedError{Reason: g.limits.tooManyRequests, RetryAfter: 100 * time.Millisecond}
	case h == nil:
		h = &gateHost{}
		g.mu.hosts[key] = h
	}
	h.inside++
	g.mu.inside++
	return func(err error) { g.leave(h, err) }, nil
}

// forgetLocked resets the counts for a new second.
func (g *hostGate) forgetLocked() {
	still := map[string]*gateHost{}
	for key, h := range g.mu.hosts {
		if h.refused = 0; h.inside > 0 {
			still[key] = h
		}
	}
	g.mu.hosts = still
}

// leave ends a request and counts its refusal.
func (g *hostGate) leave(h *gateHost, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.inside--
	g.mu.inside--
	if err != nil && g.limits.refusal(err) {
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
