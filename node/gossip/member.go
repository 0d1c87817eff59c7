package gossip

import "time"

// State is the state of a node as seen by gossip. It is a hint: a paused node is soon seen as dead,
// and a dead node as alive for a moment.
type State uint8

const (
	// Alive: it answers, or another node reports that it does.
	Alive State = iota + 1
	// Dead: it no longer answers.
	Dead
	// Left: it announced that it leaves.
	Left
)

func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Dead:
		return "dead"
	case Left:
		return "left"
	}
	return "unknown"
}

// Member is a node known to gossip.
type Member struct {
	Meta
	Gossip string // host:port of its gossip
	State  State
	Since  time.Time // of State, by this node's clock
	Self   bool      // this node itself
	// Reason is the error with which a node that left ended by itself; empty: it was stopped, or is of an older version.
	Reason string
}
