package formation

import (
	"fmt"
	"testing"
	"time"
)

func peer(i int) Peer {
	return Peer{ID: fmt.Sprintf("n%d", i), RPC: fmt.Sprintf("h%d:1", i), Gossip: fmt.Sprintf("h%d:2", i)}
}

// The work for a list of members grows with its length, not with the square of it: with 16 times as many it takes no more than about 16
// times as long.
func TestManyMembers(t *testing.T) {
	took := func(n int) time.Duration {
		m := newMembers(peer(0), nil, func(string) bool { return false })
		var half, all []Peer
		for i := range n {
			all = append(all, peer(i+1))
		}
		half = all[:n/2]
		began := time.Now()
		for range 20 {
			m.list(half)
			m.join(all)
			m.known()
			m.gossip()
			m.targets(nil)
		}
		return time.Since(began)
	}
	took(256) // warm up
	if few, many := took(256), took(4096); many > 80*few {
		t.Errorf("with 256 members %v, with 4096 members %v", few, many)
	}
}

// A member is known once, whichever source names it, and unknown at another address of gossip.
func TestSourcesOfMembers(t *testing.T) {
	removed := map[string]bool{}
	m := newMembers(peer(0), []Peer{peer(1), peer(2)}, func(id string) bool { return removed[id] })
	if !m.discover(peer(3), true) || m.discover(peer(3), true) || m.discover(peer(0), true) {
		t.Error("a caller is unknown once, the node itself never")
	}
	m.list([]Peer{peer(0), peer(1), peer(3), peer(4)})
	if got := len(m.known()); got != 4 || len(m.remembered) != 1 || len(m.discovered) != 0 {
		t.Errorf("%d known, %v remembered, %v discovered", got, m.remembered, m.discovered)
	}
	moved := peer(4)
	moved.Gossip = "h9:2"
	if m.discover(peer(4), true) || !m.discover(moved, true) {
		t.Error("a listed member is unknown only at another address")
	}
	if got := m.targets([]string{"h2:1"}); len(got) != 2 { // n2 and n4, which was discovered
		t.Errorf("targets %v", got)
	}
	removed["n4"] = true
	m.forgetRemoved()
	if got := m.gossip(); len(got) != 3 || m.knownAt(peer(4)) {
		t.Errorf("gossip addresses %v", got)
	}
}
