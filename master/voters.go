package master

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// VotersMax is the most voters that a cluster has. Chubby's cells have five
// replicas: two may fail, and more would only slow down each write.
const VotersMax = 5

// Server is a node as the plan sees it.
type Server struct {
	ID, Zone string
	// Alive tells whether gossip hears of it now, Since for how long that has been
	// so, or not.
	Alive bool
	Since time.Duration
	// Leaving tells that the operator drains or removes it: it shall not vote.
	Leaving bool
	// HasLog tells whether the node says that it has a log of the group. One that has just started says so before
	// that log is open.
	HasLog bool
	// Full tells that its disk has no room: it shall not lead, since a leader whose log cannot grow
	// refuses every change, though others have room.
	Full bool
}

// Voter is a member of the Raft group as the plan sees it.
type Voter struct {
	ID string
	// Staged: it gets the log but has no vote yet. CaughtUp: it has nearly all of
	// the log.
	Staged, CaughtUp bool
	Leader           bool
	// Silent is for how long its part in the group has not answered the leader, though
	// gossip may hear of the node.
	Silent time.Duration
}

// ChangeKind is a step of the plan.
type ChangeKind uint8

// The steps. Each changes one server.
const (
	NoChange ChangeKind = iota
	// Stage sends a node the log, without a vote.
	Stage
	// Promote gives a staged server its vote.
	Promote
	// Remove takes a server out of the group.
	Remove
	// StepDown has the leader hand over: it is the one to be removed.
	StepDown
)

func (k ChangeKind) String() string {
	return [...]string{"no change", "stage", "promote", "remove", "step down"}[k]
}

// Change is the next step, and why.
type Change struct {
	Kind ChangeKind
	ID   string
	Why  string
	// To is who shall lead after a StepDown; empty: any voter.
	To string
}

// Plan says which servers vote: up to VotersMax, an odd number, in as many zones as
// there are. It returns one step at a time; the next is planned when that is done.
//
// Two nodes both vote, though then neither may fail: a lone voter's disk would be
// the only one with the schema and the root of everything.
//
// Stable is how long a voter must be gone before it is replaced, and a node be there
// before it may vote. To a lone voter two others are added sooner: its disk is the only
// one with the schema and the root of everything, and of three one may fail.
//
// A dead voter is removed only once its place is taken, or when the cluster has
// shrunk by the operator's word: with nobody to replace it, removing it would
// lower the number of failures that the group survives when it comes back. No step
// leaves fewer live voters than a majority of what it makes.
func Plan(servers []Server, group []Voter, stable time.Duration) Change {
	p := newPlan(servers, group, stable)
	for _, rule := range []func() Change{p.relieve, p.dropStaged, p.shrink, p.promote, p.grow, p.spread} {
		if c := rule(); c.Kind != NoChange {
			return c
		}
	}
	return Change{}
}

// plan is the state that the rules look at.
type plan struct {
	servers map[string]Server
	voters  []Voter // with a vote
	staged  []Voter
	// spare are the nodes that could vote and are not in the group.
	spare []Server
	// silent are the servers of the group that do not answer its leader.
	silent map[string]time.Duration
	stable time.Duration
	target int
}

// silentMin is how long a server must not have answered to count as not there: a few
// heartbeats.
const silentMin = 2 * time.Second

func newPlan(servers []Server, group []Voter, stable time.Duration) *plan {
	p := &plan{servers: map[string]Server{}, silent: map[string]time.Duration{}, stable: stable}
	for _, s := range servers {
		p.servers[s.ID] = s
	}
	in := map[string]bool{}
	for _, v := range group {
		in[v.ID] = true
		if v.Silent >= silentMin {
			p.silent[v.ID] = v.Silent
		}
		if v.Staged {
			p.staged = append(p.staged, v)
		} else {
			p.voters = append(p.voters, v)
		}
	}
	able, least := 0, p.newcomer(servers, in)
	for _, s := range servers {
		if s.Leaving || !s.Alive {
			continue
		}
		if !in[s.ID] && s.Since >= least {
			p.spare = append(p.spare, s)
			able++
		}
		if in[s.ID] {
			able++
		}
	}
	// A voter that is gone still counts as long as it may come back: three nodes of
	// which one is down want three voters, not one.
	for _, v := range p.voters {
		if s, known := p.servers[v.ID]; known && !s.Alive && !s.Leaving {
			able++
		}
	}
	p.target = min(able, VotersMax)
	if p.target%2 == 0 && p.target != 2 {
		p.target--
	}
	p.target = max(p.target, 1)
	slices.SortFunc(p.spare, func(a, b Server) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(p.voters, func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(p.staged, func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) })
	return p
}

// newcomerMin is how long a node must be there before it may vote beside a lone voter: long
// enough for those that are started together to be all there.
const newcomerMin = time.Second

// newcomer returns how long a node must be there before it may vote. A second voter alone
// would make things worse, since then neither may fail: it has to last.
func (p *plan) newcomer(servers []Server, in map[string]bool) time.Duration {
	least := min(newcomerMin, p.stable)
	fresh := 0
	for _, s := range servers {
		if s.Alive && !s.Leaving && (in[s.ID] || s.Since >= least) {
			fresh++
		}
	}
	if len(p.voters) == 1 && fresh >= 3 {
		return least
	}
	return p.stable
}

// alive tells whether the server is there now.
func (p *plan) alive(id string) bool { return p.servers[id].Alive && p.silent[id] == 0 }

// lost tells whether the server is gone for good, by the operator's word or for so
// long that it counts as such.
func (p *plan) lost(id string) bool {
	s, known := p.servers[id]
	return !known || s.Leaving || !s.Alive && s.Since >= p.stable || p.silent[id] >= p.stable
}

// live counts the voters that are there now, but the one with the given id.
func (p *plan) live(but string) int {
	n := 0
	for _, v := range p.voters {
		if v.ID != but && p.alive(v.ID) {
			n++
		}
	}
	return n
}

func quorum(voters int) int { return voters/2 + 1 }

// votersIn counts the voters and staged servers in a zone that are not lost.
func (p *plan) votersIn(zone string) int {
	n := 0
	for _, list := range [][]Voter{p.voters, p.staged} {
		for _, v := range list {
			if !p.lost(v.ID) && p.servers[v.ID].Zone == zone {
				n++
			}
		}
	}
	return n
}

// relieve has a voter with room lead in the place of one whose disk is full.
func (p *plan) relieve() Change {
	var leader, heir *Voter
	for i := range p.voters {
		v := &p.voters[i]
		if v.Leader {
			leader = v
		}
		if !v.Leader && v.CaughtUp && p.alive(v.ID) && !p.servers[v.ID].Full && !p.servers[v.ID].Leaving {
			heir = v
		}
	}
	if leader == nil || heir == nil || !p.servers[leader.ID].Full {
		return Change{}
	}
	return Change{Kind: StepDown, ID: leader.ID, To: heir.ID, Why: "its disk is full, and another voter's is not"}
}

// dropStaged removes staged servers that are gone, not wanted or too many.
func (p *plan) dropStaged() Change {
	for _, v := range p.staged {
		if s := p.servers[v.ID]; p.lost(v.ID) {
			return Change{Kind: Remove, ID: v.ID, Why: fmt.Sprintf("it has no vote yet and has been gone for %v", s.Since.Round(time.Second))}
		}
	}
	if n := len(p.staged); n > 0 && p.kept()+n > p.target+1 {
		return Change{Kind: Remove, ID: p.staged[n-1].ID, Why: "it is not needed any more"}
	}
	return Change{}
}

// kept counts the voters that are not lost.
func (p *plan) kept() int {
	n := 0
	for _, v := range p.voters {
		if !p.lost(v.ID) {
			n++
		}
	}
	return n
}

// promote gives staged servers their votes, once all that are wanted have caught
// up: an even number of voters is only passed through.
func (p *plan) promote() Change {
	if len(p.staged) == 0 || len(p.voters) > p.target {
		return Change{}
	}
	if p.kept()+len(p.staged) < p.target && len(p.spare) > 0 {
		return Change{} // grow goes on first
	}
	for _, v := range p.staged {
		if !p.alive(v.ID) || !v.CaughtUp {
			return Change{}
		}
	}
	// The new voter is live, so a majority of one more is, too, if one is now.
	if p.live("")+1 < quorum(len(p.voters)+1) {
		return Change{}
	}
	return Change{Kind: Promote, ID: p.staged[0].ID, Why: "it has caught up"}
}

// shrink removes voters that are lost and whose place is taken, or that are too
// many. The dead go first: that makes room for the others to go.
func (p *plan) shrink() Change {
	if len(p.voters) == 1 {
		return Change{}
	}
	over := len(p.voters) > p.target
	for _, v := range p.voters {
		if s, known := p.servers[v.ID]; over && known && !s.Leaving && p.lost(v.ID) {
			if c := p.remove(v, fmt.Sprintf("it has been gone for %v and its place is taken", s.Since.Round(time.Second))); c.Kind != NoChange {
				return c
			}
		}
	}
	// One that is there, but whose part in the group is not, may take its own place.
	for _, v := range p.voters {
		if s := p.servers[v.ID]; s.Alive && !s.HasLog && !s.Leaving && p.silent[v.ID] >= p.stable {
			if c := p.remove(v, "it is there, but has no log of the group any more"); c.Kind != NoChange {
				return c
			}
		}
	}
	nobodyElse := p.kept()+len(p.spare)+len(p.staged) < p.target
	for _, v := range p.voters {
		if s, known := p.servers[v.ID]; (over || nobodyElse) && (!known || s.Leaving) {
			if c := p.remove(v, "it leaves the cluster"); c.Kind != NoChange {
				return c
			}
		}
	}
	if p.kept() > p.target && len(p.staged) == 0 {
		return p.remove(p.leastWanted(), "there are more voters than are needed")
	}
	return Change{}
}

// remove is the removal of v, if that leaves a live majority.
func (p *plan) remove(v Voter, why string) Change {
	if live := p.live(v.ID); live < quorum(len(p.voters)-1) || live == 0 {
		return Change{}
	}
	if v.Leader {
		return Change{Kind: StepDown, ID: v.ID, Why: why}
	}
	return Change{Kind: Remove, ID: v.ID, Why: why}
}

// leastWanted is the voter in the most crowded zone, a dead one before others, the
// leader last.
func (p *plan) leastWanted() Voter {
	return slices.MinFunc(p.voters, func(a, b Voter) int {
		return cmp.Or(
			compareBool(p.alive(a.ID), p.alive(b.ID)),
			cmp.Compare(p.votersIn(p.servers[b.ID].Zone), p.votersIn(p.servers[a.ID].Zone)),
			compareBool(a.Leader, b.Leader),
			cmp.Compare(b.ID, a.ID),
		)
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// grow stages one more server while fewer vote than are wanted, or one is lost.
func (p *plan) grow() Change {
	if p.kept()+len(p.staged) >= p.target || len(p.spare) == 0 {
		return Change{}
	}
	return p.stage(fmt.Sprintf("%d of %d voters are there", p.kept(), p.target))
}

// stage takes the spare in the zone with the fewest voters.
func (p *plan) stage(why string) Change {
	if p.live("") < quorum(len(p.voters)) {
		return Change{} // nothing commits now
	}
	s := slices.MinFunc(p.spare, func(a, b Server) int {
		return cmp.Or(cmp.Compare(p.votersIn(a.Zone), p.votersIn(b.Zone)), cmp.Compare(a.ID, b.ID))
	})
	return Change{Kind: Stage, ID: s.ID, Why: why}
}

// spread moves a vote from a zone that has two more than another could have with
// it.
func (p *plan) spread() Change {
	if len(p.staged) > 0 || len(p.spare) == 0 || p.live("") < len(p.voters) || p.kept() != p.target {
		return Change{}
	}
	most := p.leastWanted()
	s := slices.MinFunc(p.spare, func(a, b Server) int {
		return cmp.Or(cmp.Compare(p.votersIn(a.Zone), p.votersIn(b.Zone)), cmp.Compare(a.ID, b.ID))
	})
	if p.votersIn(p.servers[most.ID].Zone) < p.votersIn(s.Zone)+2 {
		return Change{}
	}
	return Change{Kind: Stage, ID: s.ID, Why: fmt.Sprintf("zone %q has %d voters and zone %q has %d",
		p.servers[most.ID].Zone, p.votersIn(p.servers[most.ID].Zone), s.Zone, p.votersIn(s.Zone))}
}
