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
	listed     []Peer          // by gossip
	discovered map[string]Peer // found by hello, by id
	remembered []Peer          // from the last run, not listed by gossip yet
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
	all := slices.Clone(m.listed)
	add := func(p Peer) {
		if p.ID != m.self.ID && !slices.ContainsFunc(all, func(o Peer) bool { return o.ID == p.ID }) {
			all = append(all, p)
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
	is := func(p Peer) bool {
		return slices.ContainsFunc(all, func(o Peer) bool { return o.ID == p.ID })
	}
	m.remembered = slices.DeleteFunc(m.remembered, is)
	maps.DeleteFunc(m.discovered, func(_ string, p Peer) bool { return is(p) })
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
	same := func(o Peer) bool { return o.ID == p.ID && o.Gossip == p.Gossip }
	return p.Gossip == "" || same(m.discovered[p.ID]) || slices.ContainsFunc(m.listed, same)
}

// forgetRemoved drops the members that were removed from the cluster.
func (m *members) forgetRemoved() {
	m.listed = slices.DeleteFunc(m.listed, m.isRemoved)
	m.remembered = slices.DeleteFunc(m.remembered, m.isRemoved)
	maps.DeleteFunc(m.discovered, func(_ string, p Peer) bool { return m.isRemoved(p) })
}

// gossip returns the gossip addresses of the members.
func (m *members) gossip() []string {
	var addrs []string
	for _, p := range m.known() {
		if p.Gossip != "" && p.Gossip != m.self.Gossip && !slices.Contains(addrs, p.Gossip) {
			addrs = append(addrs, p.Gossip)
		}
	}
	return addrs
}

// targets returns the seeds and the addresses of members that gossip does not list.
func (m *members) targets(seeds []string) []string {
	addrs := slices.Clone(seeds)
	for _, p := range slices.Concat(m.remembered, slices.Collect(maps.Values(m.discovered))) {
		if p.RPC != "" && p.RPC != m.self.RPC && !slices.Contains(addrs, p.RPC) {
			addrs = append(addrs, p.RPC)
		}
	}
	return addrs
}
