package master

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// VotersMax is the maximum number of voters of a cluster. Chubby's cells have five replicas: two
// may fail, and more would only slow down each write.
const VotersMax = 5

// Server is a node as seen by the plan.
type Server struct {
	ID, Zone string
	// Alive reports whether gossip sees the node now. Since is how long ago that last changed.
	Alive bool
	Since time.Duration
	// Draining reports that the operator is draining or removing the node: it must not vote.
	Draining bool
	// HasLog reports whether the node announces a log of the group. A node that has just started announces it before
	// the log is open.
	HasLog bool
	// Full reports that the node's disk has no free space. A full voter must not lead, because a
	// leader whose log cannot grow rejects every change. A full node is not given a vote.
	Full bool
	// Deferred reports that the node recently failed to join the group, or is staged without
	// catching up. The plan does not count on it until its next attempt.
	Deferred bool
}

// Voter is a member of the Raft group as seen by the plan.
type Voter struct {
	ID string
	// Staged: the member receives the log but has no vote yet. CaughtUp: it has nearly all of the log.
	Staged, CaughtUp bool
	Leader           bool
	// Silent is the time since the member last answered the leader; gossip may list the node as
	// alive meanwhile.
	Silent time.Duration
}

// ChangeKind is the type of a step of the plan.
type ChangeKind uint8

// The kinds of steps. Each changes one server.
const (
	NoChange ChangeKind = iota
	// Stage adds a node without a vote: it receives the log.
	Stage
	// Promote gives a staged server a vote.
	Promote
	// Remove removes a server from the group.
	Remove
	// StepDown transfers leadership: the leader is to be removed, or its disk is full.
	StepDown
)

func (k ChangeKind) String() string {
	return [...]string{"no change", "stage", "promote", "remove", "step down"}[k]
}

// Change is the next step and its reason.
type Change struct {
	Kind ChangeKind
	ID   string
	Why  string
	// To is the next leader after a StepDown; empty for any voter.
	To string
}

// Plan returns the next step toward the best set of voters: up to VotersMax, an odd number, in as
// many zones as possible. It chooses that set from the nodes that are able to vote now (see
// choose), then the first step toward it that is safe. A node that cannot vote therefore never
// keeps others from being given votes.
//
// Of two nodes both vote, although then neither may fail: otherwise the disk of a lone voter would
// hold the only copy of the schema and of the root tablet's location.
//
// Stable is how long a voter must be gone before it is replaced, and how long a node must be up
// before it may vote. A lone voter gets two others sooner, for the same reason.
//
// A dead voter is removed only after its replacement has a vote, or when the operator has shrunk
// the cluster. Removed without a replacement, it would lower the number of failures that the group
// survives once it comes back. No step leaves fewer live voters than a majority of the resulting
// group.
func Plan(servers []Server, group []Voter, stable time.Duration) Change {
	p := newPlan(servers, group, stable)
	p.choose()
	for _, rule := range []func() Change{p.relieve, p.dropStaged, p.shrink, p.promote, p.grow} {
		if c := rule(); c.Kind != NoChange {
			return c
		}
	}
	return Change{}
}

// relieve transfers leadership from a voter whose disk is full to one with free space.
func (p *plan) relieve() Change {
	for _, v := range p.voters {
		if !v.Leader || !p.servers[v.ID].Full {
			continue
		}
		if successor := p.successor(v.ID); p.chosen[successor] && !p.servers[successor].Full {
			return Change{Kind: StepDown, ID: v.ID, To: successor, Why: "its disk is full, unlike that of another voter"}
		}
	}
	return Change{}
}

// successor returns the voter that should lead after another one: preferably a chosen one, then one
// with free space. It returns the empty string if no live voter has caught up.
func (p *plan) successor(leader string) string {
	var able []string
	for _, v := range p.voters {
		if v.ID != leader && v.CaughtUp && p.alive(v.ID) {
			able = append(able, v.ID)
		}
	}
	if len(able) == 0 {
		return ""
	}
	return slices.MinFunc(able, func(a, b string) int {
		return cmp.Or(compareBool(p.chosen[b], p.chosen[a]), compareBool(p.servers[a].Full, p.servers[b].Full), cmp.Compare(a, b))
	})
}

// lateMax is how many staged servers outside the chosen set are kept although they do not catch up.
// The group grows by two at a time.
const lateMax = 2

// dropStaged removes staged servers that are gone, and those outside the chosen set that need not
// stay in the group.
//
// A server that is slow to catch up stays: after a removal it would start from nothing at its next
// attempt. One that has caught up stays while a node is deferred, since the two may become voters
// together.
func (p *plan) dropStaged() Change {
	deferred := false
	for _, s := range p.servers {
		deferred = deferred || s.Deferred && s.Alive && !s.Draining
	}
	ready, late := 0, 0
	for _, v := range p.staged {
		s := p.servers[v.ID]
		switch {
		case p.lost(v.ID):
			return Change{Kind: Remove, ID: v.ID, Why: fmt.Sprintf("it has no vote yet and has been gone for %v", s.Since.Round(time.Second))}
		case p.chosen[v.ID] || s.Since < p.least:
		case s.Full:
			return Change{Kind: Remove, ID: v.ID, Why: "it has no vote yet and its disk is full"}
		case s.Deferred:
			if late++; late > lateMax {
				return Change{Kind: Remove, ID: v.ID, Why: "it does not catch up with the log"}
			}
		default:
			if ready++; ready > 1 || !deferred {
				return Change{Kind: Remove, ID: v.ID, Why: "it is no longer needed"}
			}
		}
	}
	return Change{}
}

// promote gives chosen staged servers that have caught up their votes. It passes through an even
// number of voters only if the next server is also ready, or if none other is expected: an even
// number survives no more failures than the odd number below it.
func (p *plan) promote() Change {
	if len(p.voters) > p.target {
		return Change{}
	}
	var ready []Voter
	for _, v := range p.staged {
		if p.chosen[v.ID] && v.CaughtUp && p.alive(v.ID) {
			ready = append(ready, v)
		}
	}
	if len(ready) == 0 {
		return Change{}
	}
	if odd := len(p.voters)%2 == 0; !odd && len(ready) == 1 && p.missing() > 1 {
		return Change{}
	}
	// The new voter is live, so if a majority is live now, a majority of one more is, too.
	if p.live("")+1 < quorum(len(p.voters)+1) {
		return Change{}
	}
	return Change{Kind: Promote, ID: ready[0].ID, Why: "it has caught up"}
}

// missing returns the number of chosen servers without a vote.
func (p *plan) missing() int {
	n := len(p.chosen)
	for _, v := range p.voters {
		if p.chosen[v.ID] {
			n--
		}
	}
	return n
}

// shrink removes lost voters that have been replaced, and those outside the chosen set. Dead voters
// go first: afterwards a majority needs fewer live voters.
func (p *plan) shrink() Change {
	if len(p.voters) == 1 {
		return Change{}
	}
	over := len(p.voters) > p.target
	for _, v := range p.voters {
		if s, known := p.servers[v.ID]; over && known && !s.Draining && p.lost(v.ID) {
			if c := p.remove(v, fmt.Sprintf("it has been gone for %v and was replaced", s.Since.Round(time.Second))); c.Kind != NoChange {
				return c
			}
		}
	}
	// A node that is up but has lost its log may be its own replacement.
	for _, v := range p.voters {
		if s := p.servers[v.ID]; s.Alive && !s.HasLog && !s.Draining && p.silent[v.ID] >= p.stable {
			if c := p.remove(v, "it is up but has lost its log of the group"); c.Kind != NoChange {
				return c
			}
		}
	}
	noReplacement := len(p.chosen) < p.target
	for _, v := range p.voters {
		if s, known := p.servers[v.ID]; (over || noReplacement) && (!known || s.Draining) {
			if c := p.remove(v, "it is draining or was removed"); c.Kind != NoChange {
				return c
			}
		}
	}
	if p.missing() > 0 {
		return Change{}
	}
	for _, v := range p.voters {
		if over && !p.chosen[v.ID] && !p.lost(v.ID) {
			return p.remove(v, "there are more voters than needed")
		}
	}
	return Change{}
}

// remove returns the removal of v if a majority of the others is live, and no change otherwise.
func (p *plan) remove(v Voter, why string) Change {
	if live := p.live(v.ID); live < quorum(len(p.voters)-1) || live == 0 {
		return Change{}
	}
	if v.Leader {
		return Change{Kind: StepDown, ID: v.ID, To: p.successor(v.ID), Why: why}
	}
	return Change{Kind: Remove, ID: v.ID, Why: why}
}

// grow stages the next chosen server that is not in the group.
func (p *plan) grow() Change {
	if p.live("") < quorum(len(p.voters)) {
		return Change{} // without a live majority nothing commits
	}
	for _, id := range p.added {
		if _, staged := find(p.staged, id); !staged {
			return Change{Kind: Stage, ID: id, Why: p.why}
		}
	}
	return Change{}
}
