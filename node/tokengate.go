package node

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
)

const (
	// tokensMax and tokensOfHost bound the access tokens that are looked at, at once, and those
	// that one host shows: each is a read at the leader of the lock service.
	tokensMax    = 64
	tokensOfHost = 16
	// tokenRefusalsMax is how many of a host's tokens are found bad in a second. After that it is
	// told to wait: who has one does not need to guess.
	tokenRefusalsMax = 20
	// tokenHostsMax bounds the hosts that are told apart. What comes from others then waits, for a
	// second at most.
	tokenHostsMax = 10_000
)

// tokenGate bounds what those who show access tokens cost. The zero value is ready.
type tokenGate struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		second time.Time
		inside int
		hosts  map[string]*tokenHost
	}
}

// tokenHost is what a host has cost.
type tokenHost struct {
	inside  int // tokens that are looked at
	refused int // in the gate's second
}

// enter lets a host's token be looked at, until leave; or it is an *api.OverloadedError.
func (g *tokenGate) enter(host string) (leave func(err error), err error) {
	key := networkOf(host)
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.mu.second) >= time.Second {
		g.mu.second = now
		g.forgetLocked()
	}
	h := g.mu.hosts[key]
	switch {
	case h == nil && len(g.mu.hosts) >= tokenHostsMax, h != nil && h.refused >= tokenRefusalsMax:
		return nil, &api.OverloadedError{Reason: "too many tokens were bad", RetryAfter: time.Second}
	case g.mu.inside >= tokensMax, h != nil && h.inside >= tokensOfHost:
		return nil, &api.OverloadedError{Reason: "too many tokens are looked at", RetryAfter: 100 * time.Millisecond}
	case h == nil:
		h = &tokenHost{}
		g.mu.hosts[key] = h
	}
	h.inside++
	g.mu.inside++
	return func(err error) { g.leave(h, err) }, nil
}

// forgetLocked begins another second.
func (g *tokenGate) forgetLocked() {
	still := map[string]*tokenHost{}
	for key, h := range g.mu.hosts {
		if h.refused = 0; h.inside > 0 {
			still[key] = h
		}
	}
	g.mu.hosts = still
}

// leave gives the place back, and counts a token that was bad.
func (g *tokenGate) leave(h *tokenHost, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.inside--
	g.mu.inside--
	if errors.Is(err, api.ErrUnauthenticated) {
		h.refused++
	}
}

// networkOf is the address of a host, or of its network: in IPv6 each has as many addresses as it likes.
func networkOf(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil || a.Unmap().Is4() {
		return host
	}
	p, _ := a.WithZone("").Prefix(64) // of 128 bits
	return p.String()
}
