package master

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/internal/planted"
)

// plan is the state that the rules work on.
type plan struct {
	servers map[string]Server
	voters  []Voter // members with a vote
	staged  []Voter
	// silent holds the members that do not answer the leader, and for how long.
	silent map[string]time.Duration
	stable time.Duration
	// least is the minimum uptime of a node before it may be given a vote.
	least time.Duration
	// target is the desired number of voters, including dead ones that may come back.
	target int
	// chosen is the chosen set, of at most target servers. added are those of it without a vote, best
	// first. why is the reason for adding them.
	chosen map[string]bool
	added  []string
	why    string
}

// silentMin is how long a member must not have answered to count as absent: a few heartbeats.
const silentMin = 2 * time.Second

// newcomerMin is the minimum uptime of a node that is to be one of the first three voters: long enough for
// nodes that are started together to be all up.
const newcomerMin = time.Second

func newPlan(servers []Server, group []Voter, stable time.Duration) *plan {
	p := &plan{servers: map[string]Server{}, silent: map[string]time.Duration{}, chosen: map[string]bool{}, stable: stable}
	for _, s := range servers {
		p.servers[s.ID] = s
	}
	for _, v := range group {
		if v.Silent >= silentMin {
			p.silent[v.ID] = v.Silent
		}
		if v.Staged {
			p.staged = append(p.staged, v)
		} else {
			p.voters = append(p.voters, v)
		}
	}
	byID := func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(p.voters, byID)
	slices.SortFunc(p.staged, byID)
	p.least = p.newcomer()
	return p
}

// newcomer returns the minimum uptime of a node before it may vote. A second voter alone would make
// things worse, since then neither may fail, so it must have proved stable. A third makes them better at once.
func (p *plan) newcomer() time.Duration {
	least := min(newcomerMin, p.stable)
	fresh := 0
	for id := range p.servers {
		if _, votes := find(p.voters, id); votes && !p.lost(id) || p.able(id, least) {
			fresh++
		}
	}
	if len(p.voters) <= 2 && fresh >= 3 {
		return least
	}
	return p.stable
}

// able reports whether a node without a vote could be given one now.
func (p *plan) able(id string, least time.Duration) bool {
	if _, votes := find(p.voters, id); votes {
		return false
	}
	s := p.servers[id]
	return s.Alive && !s.Draining && (!s.Full && !s.Deferred || planted.On(planted.VotersFrozen)) && s.Since >= least && p.silent[id] < p.stable
}

// choose chooses the servers that should vote: the voters that are not lost, then able nodes in the
// zones with the fewest voters. It moves a vote out of a crowded zone only while all voters are
// live.
func (p *plan) choose() {
	var set, candidates []string
	absent := 0
	for _, v := range p.voters {
		s, known := p.servers[v.ID]
		switch {
		case !p.lost(v.ID):
			set = append(set, v.ID)
		case known && !s.Draining:
			// A voter that is gone still counts as long as it may come back: three nodes of which
			// one is down need three voters, not one.
			absent++
		}
	}
	for id := range p.servers {
		if p.able(id, p.least) {
			candidates = append(candidates, id)
		}
	}
	p.target = targetOf(len(set) + len(candidates) + absent)
	p.why = fmt.Sprintf("%d of %d voters exist", len(set), p.target)
	settled := len(set) == p.target && p.live("") == len(p.voters)
	for len(set) > p.target {
		set = remove(set, p.mostExpendable(set))
	}
	for len(set) < p.target && len(candidates) > 0 {
		best := p.best(set, candidates)
		candidates = remove(candidates, best)
		set, p.added = append(set, best), append(p.added, best)
	}
	if settled && len(candidates) > 0 {
		set = p.rebalance(set, candidates)
	}
	for _, id := range set {
		p.chosen[id] = true
	}
}

// targetOf returns how many of n servers should vote.
func targetOf(n int) int {
	n = min(n, VotersMax)
	if n%2 == 0 && n != 2 {
		n--
	}
	return max(n, 1)
}

// rebalance replaces a server in the zone with the most voters by a candidate, if that zone has at
// least two more than the candidate's.
func (p *plan) rebalance(set, candidates []string) []string {
	most, best := p.mostExpendable(set), p.best(set, candidates)
	from, to := p.servers[most].Zone, p.servers[best].Zone
	many, few := p.inZone(set, from), p.inZone(set, to)
	if many < few+2 {
		return set
	}
	p.added = []string{best}
	p.why = fmt.Sprintf("zone %q has %d voters and zone %q has %d", from, many, to, few)
	return append(remove(set, most), best)
}

// best returns the candidate in the zone with the fewest servers of the set; among equals a staged
// one.
func (p *plan) best(set, candidates []string) string {
	return slices.MinFunc(candidates, func(a, b string) int {
		_, stagedA := find(p.staged, a)
		_, stagedB := find(p.staged, b)
		return cmp.Or(
			cmp.Compare(p.inZone(set, p.servers[a].Zone), p.inZone(set, p.servers[b].Zone)),
			compareBool(stagedB, stagedA),
			cmp.Compare(a, b),
		)
	})
}

// mostExpendable returns the server of the set to leave out first: a dead one, then one in the most
// crowded zone; the leader last.
func (p *plan) mostExpendable(set []string) string {
	return slices.MinFunc(set, func(a, b string) int {
		va, _ := find(p.voters, a)
		vb, _ := find(p.voters, b)
		return cmp.Or(
			compareBool(p.alive(a), p.alive(b)),
			cmp.Compare(p.inZone(set, p.servers[b].Zone), p.inZone(set, p.servers[a].Zone)),
			compareBool(va.Leader, vb.Leader),
			cmp.Compare(b, a),
		)
	})
}

// inZone returns the number of servers of the set in a zone.
func (p *plan) inZone(set []string, zone string) int {
	n := 0
	for _, id := range set {
		if p.servers[id].Zone == zone {
			n++
		}
	}
	return n
}

// alive reports whether the server is up and answers the leader.
func (p *plan) alive(id string) bool { return p.servers[id].Alive && p.silent[id] == 0 }

// lost reports whether the server is gone for good: by the operator's decision, or because it has
// been gone for stable.
func (p *plan) lost(id string) bool {
	s, known := p.servers[id]
	return !known || s.Draining || !s.Alive && s.Since >= p.stable || p.silent[id] >= p.stable
}

// live returns the number of live voters, except the given one.
func (p *plan) live(except string) int {
	n := 0
	for _, v := range p.voters {
		if v.ID != except && p.alive(v.ID) {
			n++
		}
	}
	return n
}

func quorum(voters int) int { return voters/2 + 1 }

func find(list []Voter, id string) (Voter, bool) {
	i := slices.IndexFunc(list, func(v Voter) bool { return v.ID == id })
	if i < 0 {
		return Voter{}, false
	}
	return list[i], true
}

func remove(set []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(set), func(s string) bool { return s == id })
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
