package formation

import (
	"maps"
	"slices"
)

// members is what a node knows of the other members of its cluster, from three sources. It is not
// safe for concurrent use.
type members struct {
	self       Peer
	removed    func(id string) bool
	listed     []Peer            // by gossip
	byID       map[string]string // the gossip addresses of listed
	discovered map[string]Peer   // found by hello, by id
	remembered []Peer            // from the last run, not listed by gossip yet
}

func newMembers(self Peer, remembered []Peer, removed func(id string) bool) members {
	m := members{self: self, removed: removed, discovered: map[string]Peer{}}
	m.remembered = slices.DeleteFunc(remembered, m.isRemoved)
	return m
}

func (m *members) isRemoved(p Peer) bool { return m.removed(p.ID) }

// known returns the members. An entry of gossip takes precedence over a hello, and that over the
// file.
func (m *members) known() []Peer {
	all, has := slices.Clone(m.listed), map[string]bool{m.self.ID: true}
	for _, p := range all {
		has[p.ID] = true
	}
	add := func(p Peer) {
		if !has[p.ID] {
			has[p.ID], all = true, append(all, p)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.discovered)) {
		add(m.discovered[id])
	}
	for _, p := range m.remembered {
		add(p)
	}
	return all
}

// list replaces the members that gossip lists.
func (m *members) list(all []Peer) {
	m.listed = slices.DeleteFunc(slices.Clone(all), func(p Peer) bool { return p.ID == m.self.ID || m.removed(p.ID) })
	m.byID = make(map[string]string, len(all))
	for _, p := range all {
		m.byID[p.ID] = p.Gossip
		delete(m.discovered, p.ID)
	}
	m.remembered = slices.DeleteFunc(m.remembered, func(p Peer) bool {
		_, listed := m.byID[p.ID]
		return listed
	})
}

// discover records a member that another one named in a hello, or that sent it: caller. It reports
// whether gossip should contact the member, because its address was not known.
func (m *members) discover(p Peer, caller bool) (unknown bool) {
	_, known := m.discovered[p.ID]
	accept := known && caller || !known && len(m.discovered) < peersMax
	if !accept || p.ID == m.self.ID || !p.valid() || m.removed(p.ID) {
		return false
	}
	met := m.knownAt(p)
	m.discovered[p.ID] = p
	return !met
}

// join records the members named by the node that admitted this one.
func (m *members) join(all []Peer) {
	for _, p := range all {
		if p.ID != m.self.ID && !m.removed(p.ID) {
			m.discovered[p.ID] = p
		}
	}
}

// knownAt reports whether a member is known with this gossip address.
func (m *members) knownAt(p Peer) bool {
	d, met := m.discovered[p.ID]
	at, listed := m.byID[p.ID]
	return p.Gossip == "" || met && d.Gossip == p.Gossip || listed && at == p.Gossip
}

// forgetRemoved drops the members that were removed from the cluster.
func (m *members) forgetRemoved() {
	m.listed = slices.DeleteFunc(m.listed, m.isRemoved)
	maps.DeleteFunc(m.byID, func(id, _ string) bool { return m.removed(id) })
	m.remembered = slices.DeleteFunc(m.remembered, m.isRemoved)
	maps.DeleteFunc(m.discovered, func(_ string, p Peer) bool { return m.isRemoved(p) })
}

// gossip returns the gossip addresses of the members.
func (m *members) gossip() []string {
	var addrs []string
	has := map[string]bool{"": true, m.self.Gossip: true}
	for _, p := range m.known() {
		if !has[p.Gossip] {
			has[p.Gossip], addrs = true, append(addrs, p.Gossip)
		}
	}
	return addrs
}

// targets returns the seeds and the addresses of members that gossip does not list.
func (m *members) targets(seeds []string) []string {
	addrs, has := slices.Clone(seeds), map[string]bool{"": true, m.self.RPC: true}
	for _, addr := range seeds {
		has[addr] = true
	}
	for _, p := range slices.Concat(m.remembered, slices.Collect(maps.Values(m.discovered))) {
		if !has[p.RPC] {
			has[p.RPC], addrs = true, append(addrs, p.RPC)
		}
	}
	return addrs
}
