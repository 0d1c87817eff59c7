package gossip

import "time"

// State is what gossip believes of a node. It is a hint: a paused node is soon
// believed dead, and a dead one alive for a moment.
type State uint8

const (
	// Alive: it answers, or somebody says so.
	Alive State = iota + 1
	// Dead: it does not answer any more.
	Dead
	// Left: it said that it goes.
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

// Member is a node that gossip knows of.
type Member struct {
	Meta
	Gossip string // host:port that gossip reaches it by
	State  State
	Since  time.Time // of State, by this node's clock
	Self   bool      // it is this node
}
