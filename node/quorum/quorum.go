// Package quorum states why the lock service does not answer: it has no leader, and so many of its voters are alive. It starts no
// goroutine.
package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	votes := map[string]bool{}
	if group == nil {
		for _, m := range members {
			votes[m.ID] = m.Voter
		}
	} else if leader, _ := group.Leader(); leader != "" {
		return nil
	} else {
		for _, m := range group.Members() {
			votes[m.ID] = m.Voter
		}
	}
	v := q.count(votes, members)
	if group == nil && v.alive() >= v.needed() {
		return nil
	}
	return v.noLeader()
}

// voters are the voters of the lock service as a node sees them.
type voters struct {
	all  int
	down []string // the names of those that are not alive, or their ids
}

func (v voters) alive() int  { return v.all - len(v.down) }
func (v voters) needed() int { return v.all/2 + 1 }

// count returns the voters, given which nodes vote. A voter that is no member is not alive.
func (q Config) count(votes map[string]bool, members []gossip.Member) voters {
	alive, names := map[string]bool{q.ID(): true}, map[string]string{}
	for _, m := range members {
		alive[m.ID], names[m.ID] = alive[m.ID] || m.State == gossip.Alive, m.Name
	}
	var v voters
	for id, votes := range votes {
		if votes {
			v.all++
		}
		if votes && !alive[id] {
			v.down = append(v.down, cmp.Or(names[id], id))
		}
	}
	slices.Sort(v.down)
	return v
}

// noLeader returns the error for a lock service without a leader.
func (v voters) noLeader() *rpc.Error {
	text := fmt.Sprintf("the lock service has no leader: %d of its %d voters are alive, and %d are needed", v.alive(), v.all, v.needed())
	switch {
	case v.alive() >= v.needed():
		text += ": they are electing one, or cannot reach each other"
	case len(v.down) == 0:
		text += `: if the voters are lost for good, see "stele raft recover --help"`
	default:
		text += ": start " + strings.Join(v.down, ", ") + `; if their disks are lost for good, see "stele raft recover --help"`
	}
	return &rpc.Error{Code: rpc.CodeUnavailable, Message: text, Retryable: true, Details: map[string]any{"voters": v.all, "voters_alive": v.alive()}}
}
