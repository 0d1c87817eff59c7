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
	// Alive reports whether gossip sees the node now. Since is how long ago that last changed.
	Alive bool
	Since time.Duration
	// Leaving reports that the operator drains or removes the node: it must not vote.
	Leaving bool
	// HasLog reports whether the node announces a log of the group. A node that has just started announces it before
	// the log is open.
	HasLog bool
	// Full reports that the node's disk has no free space. A full voter must not lead: a leader whose log cannot grow
	// rejects every change. A full node is not given a vote.
	Full bool
	// Deferred reports that the node recently failed to join the group, or is in it without catching up.
	// It is not counted on until its next attempt.
	Deferred bool
}

// Voter is a member of the Raft group as the plan sees it.
type Voter struct {
	ID string
	// Staged: the member receives the log but has no vote yet. CaughtUp: it has nearly all of the log.
	Staged, CaughtUp bool
	Leader           bool
	// Silent is how long ago the member last answered the leader, though gossip may see the node.
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
	// StepDown transfers leadership: the leader is to be removed, or its disk is full.
	StepDown
)

func (k ChangeKind) String() string {
	return [...]string{"no change", "stage", "promote", "remove", "step down"}[k]
}

// Change is the next step, and its reason.
type Change struct {
	Kind ChangeKind
	ID   string
	Why  string
	// To is the next leader after a StepDown; empty means any voter.
	To string
}

// Plan returns the next step toward the best set of voters: up to VotersMax, an odd number, in as many zones as
// possible. It first chooses that set from the nodes that are able to vote now (see choose), then the first
// step toward it that is safe. A node that cannot vote therefore never stops the others from being given votes.
//
// Two nodes both vote, although then neither may fail: the disk of a lone voter would hold the only copy of the schema
// and of the root tablet's location.
//
// Stable is how long a voter must be gone before it is replaced, and how long a node must be
// up before it may vote. A lone voter gets two others sooner, for the same reason.
//
// A dead voter is removed only once its place is taken, or when the operator has shrunk the cluster.
// With no replacement, its removal would lower the number of failures that the group survives when it comes back. No
// step leaves fewer live voters than a majority of the resulting group.
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
		if heir := p.heir(v.ID); p.want[heir] && !p.servers[heir].Full {
			return Change{Kind: StepDown, ID: v.ID, To: heir, Why: "its disk is full, and another voter's is not"}
		}
	}
	return Change{}
}

// heir returns the voter that should lead after another one: preferably one that stays, and one with free space. It
// returns the empty string if no voter has caught up.
func (p *plan) heir(leader string) string {
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
		return cmp.Or(compareBool(p.want[b], p.want[a]), compareBool(p.servers[a].Full, p.servers[b].Full), cmp.Compare(a, b))
	})
}

// lateMax is how many staged servers that do not catch up are kept beside the chosen set. The
// group grows by two at a time.
const lateMax = 2

// dropStaged removes staged servers that are gone, and those outside the chosen set that need not wait in the group.
//
// A server that is slow to catch up stays: if removed, it would start from nothing at its next attempt. One
// that has caught up stays while a node is deferred, since the two of them may become voters together.
func (p *plan) dropStaged() Change {
	deferred := false
	for _, s := range p.servers {
		deferred = deferred || s.Deferred && s.Alive && !s.Leaving
	}
	ready, late := 0, 0
	for _, v := range p.staged {
		s := p.servers[v.ID]
		switch {
		case p.lost(v.ID):
			return Change{Kind: Remove, ID: v.ID, Why: fmt.Sprintf("it has no vote yet and has been gone for %v", s.Since.Round(time.Second))}
		case p.want[v.ID] || s.Since < p.least:
		case s.Full:
			return Change{Kind: Remove, ID: v.ID, Why: "it has no vote yet and its disk is full"}
		case s.Deferred:
			if late++; late > lateMax {
				return Change{Kind: Remove, ID: v.ID, Why: "it does not catch up with the log"}
			}
		default:
			if ready++; ready > 1 || !deferred {
				return Change{Kind: Remove, ID: v.ID, Why: "it is not needed any more"}
			}
		}
	}
	return Change{}
}

// promote gives chosen staged servers that have caught up their votes. It passes through an even number of
// voters only if the next server is ready, too, or if no other one is to be waited for: an even number survives no more failures
// than the odd number below it.
func (p *plan) promote() Change {
	if len(p.voters) > p.target {
		return Change{}
	}
	var ready []Voter
	for _, v := range p.staged {
		if p.want[v.ID] && v.CaughtUp && p.alive(v.ID) {
			ready = append(ready, v)
		}
	}
	if len(ready) == 0 {
		return Change{}
	}
	if odd := len(p.voters)%2 == 0; !odd && len(ready) == 1 && p.missing() > 1 {
		return Change{}
	}
	// The new voter is live, so a majority of one more is, too, if one is now.
	if p.live("")+1 < quorum(len(p.voters)+1) {
		return Change{}
	}
	return Change{Kind: Promote, ID: ready[0].ID, Why: "it has caught up"}
}

// missing counts the chosen servers that have no vote yet.
func (p *plan) missing() int {
	n := len(p.want)
	for _, v := range p.voters {
		if p.want[v.ID] {
			n--
		}
	}
	return n
}

// shrink removes voters that are lost and whose place is taken, and those outside the chosen set. The dead go first: after
// that, fewer live voters make a majority.
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
	// A node that is up but has lost its log may take its own place.
	for _, v := range p.voters {
		if s := p.servers[v.ID]; s.Alive && !s.HasLog && !s.Leaving && p.silent[v.ID] >= p.stable {
			if c := p.remove(v, "it is there, but has no log of the group any more"); c.Kind != NoChange {
				return c
			}
		}
	}
	noReplacement := len(p.want) < p.target
	for _, v := range p.voters {
		if s, known := p.servers[v.ID]; (over || noReplacement) && (!known || s.Leaving) {
			if c := p.remove(v, "it leaves the cluster"); c.Kind != NoChange {
				return c
			}
		}
	}
	if p.missing() > 0 {
		return Change{}
	}
	for _, v := range p.voters {
		if over && !p.want[v.ID] && !p.lost(v.ID) {
			return p.remove(v, "there are more voters than are needed")
		}
	}
	return Change{}
}

// remove is the removal of v, if that leaves a live majority.
func (p *plan) remove(v Voter, why string) Change {
	if live := p.live(v.ID); live < quorum(len(p.voters)-1) || live == 0 {
		return Change{}
	}
	if v.Leader {
		return Change{Kind: StepDown, ID: v.ID, To: p.heir(v.ID), Why: why}
	}
	return Change{Kind: Remove, ID: v.ID, Why: why}
}

// grow stages the next chosen server that is not in the group.
func (p *plan) grow() Change {
	if p.live("") < quorum(len(p.voters)) {
		return Change{} // nothing commits now
	}
	for _, id := range p.added {
		if _, staged := find(p.staged, id); !staged {
			return Change{Kind: Stage, ID: id, Why: p.why}
		}
	}
	return Change{}
}
