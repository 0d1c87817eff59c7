// Package quorum states why the lock service does not answer: it has no leader, and so many of its voters are alive. It starts no
// goroutine.
package quorum

import (
	"fmt"

	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
)

// Config is what the check needs.
type Config struct {
	ID      func() string // of the node
	Leased  func() bool   // reports whether the node's lease is valid, or it has none yet
	Group   func() Group  // nil if the node does not vote
	Members func() []gossip.Member
}

// Group is the node's Raft group.
type Group interface {
	// Leader returns the leader's id, or "" if there is none.
	Leader() (id string, term uint64)
	Members() []raftmeta.Member
}

// Check returns an error if the lock service has no leader and this node's lease has expired because of it. It returns nil while there is a
// leader, and while the node reacquires its lock.
func (q Config) Check() error {
	if q.Leased() {
		return nil
	}
	group, members := q.Group(), q.Members()
	alive := map[string]bool{q.ID(): true}
	for _, m := range members {
		alive[m.ID] = alive[m.ID] || m.State == gossip.Alive
	}
	voters, there := 0, 0
	count := func(id string) {
		voters++
		if alive[id] {
			there++
		}
	}
	if group == nil {
		for _, m := range members {
			if m.Voter {
				count(m.ID)
			}
		}
		if there > voters/2 {
			return nil
		}
		return noLeaderError(voters, there)
	}
	if leader, _ := group.Leader(); leader != "" {
		return nil
	}
	for _, m := range group.Members() {
		if m.Voter {
			count(m.ID)
		}
	}
	return noLeaderError(voters, there)
}

// noLeaderError returns the error for a lock service without a leader, given the numbers of its voters and of those that are alive.
func noLeaderError(voters, there int) *rpc.Error {
	text := fmt.Sprintf("the lock service has no leader: %[2]d of its %[1]d voters are alive, and %[3]d are needed", voters, there, voters/2+1)
	if there <= voters/2 {
		text += `: start the others; if they are lost for good, see "stele raft recover --help"`
	} else {
		text += ": they are electing one, or cannot reach each other"
	}
	return &rpc.Error{Code: rpc.CodeUnavailable, Message: text, Retryable: true}
}
