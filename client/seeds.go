package client

import (
	"slices"
	"sync/atomic"
)

// seeds holds addresses of nodes for calls that any node can answer. One is used until it fails.
type seeds struct {
	addrs   atomic.Pointer[[]string] // copied on write
	current atomic.Uint32
}

// seedsMax bounds the total number of addresses, including learned ones.
const seedsMax = 64

func (s *seeds) any() string {
	addrs := *s.addrs.Load()
	return addrs[int(s.current.Load())%len(addrs)]
}

// skip switches to the next address if addr, which failed, is the current one.
func (s *seeds) skip(addr string) {
	i := s.current.Load()
	if addrs := *s.addrs.Load(); addrs[int(i)%len(addrs)] == addr {
		s.current.CompareAndSwap(i, (i+1)%uint32(len(addrs)))
	}
}

func (s *seeds) count() int { return len(*s.addrs.Load()) }

// add adds addresses of the cluster, so that the configured ones may become invalid.
func (s *seeds) add(addrs ...string) {
	for {
		old := s.addrs.Load()
		if len(*old) >= seedsMax {
			return
		}
		next := (*old)[:len(*old):len(*old)]
		for _, a := range addrs {
			if a != "" && len(next) < seedsMax && !slices.Contains(next, a) {
				next = append(next, a)
			}
		}
		if len(next) == len(*old) || s.addrs.CompareAndSwap(old, &next) {
			return
		}
	}
}
