package members

import (
	"maps"
	"slices"
	"sync"
)

// addresses has the last known addresses of nodes.
type addresses struct {
	// removed reports whether a node was removed. Such a node has no address.
	removed func(id string) bool
	mu      sync.Mutex
	byID    map[string]string
}

func (a *addresses) set(id, addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.removed(id) {
		return
	}
	if a.byID == nil {
		a.byID = map[string]string{}
	}
	a.byID[id] = addr
}

// learn sets the address of a node that has none.
func (a *addresses) learn(id, addr string) {
	if _, known := a.get(id); !known && addr != "" {
		a.set(id, addr)
	}
}

func (a *addresses) get(id string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addr, ok := a.byID[id]
	return addr, ok
}

// forgetRemoved drops nodes that removed now reports.
func (a *addresses) forgetRemoved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.byID, func(id, _ string) bool { return a.removed(id) })
}

func (a *addresses) at(addr string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, x := range a.byID {
		if x == addr {
			return id
		}
	}
	return ""
}

func (a *addresses) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.byID))
}

// AddressOf returns the last known address of a node.
func (sv *Service) AddressOf(id string) (string, bool) {
	if id == sv.Self.ID() {
		return sv.Self.Address, true
	}
	return sv.known.get(id)
}

// NodeAt returns the id of the node at addr, or "" if it is unknown.
func (sv *Service) NodeAt(addr string) string {
	if addr == "" {
		return ""
	}
	if addr == sv.Self.Address {
		return sv.Self.ID()
	}
	return sv.known.at(addr)
}

// Addresses returns the last known addresses of the other nodes, in no order.
func (sv *Service) Addresses() []string { return sv.known.all() }
