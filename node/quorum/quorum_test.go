package quorum

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
)

// group is a Raft group. It implements Group.
type group struct {
	leader  string
	members []raftmeta.Member
}

func (g *group) Leader() (string, uint64)   { return g.leader, 1 }
func (g *group) Members() []raftmeta.Member { return g.members }

// situation is what a node knows of a cluster: n0 to n4, of which the first ones vote.
type situation struct {
	voters int
	alive  int // a bit for each node; the node itself always is alive
	self   int
	votes  bool // the node itself has a Raft group
	leader bool
	leased bool
}

func name(i int) string { return fmt.Sprintf("n%d", i) }

const nodes = 5

// config returns the check of a node in the situation.
func (s situation) config() Config {
	var members []gossip.Member
	g := &group{}
	for i := range nodes {
		m := gossip.Member{Meta: gossip.Meta{ID: name(i), Voter: i < s.voters}, State: gossip.Dead}
		if s.alive&(1<<i) != 0 {
			m.State = gossip.Alive
		} else if i%2 == 0 {
			m.State = gossip.Left
		}
		members = append(members, m)
		g.members = append(g.members, raftmeta.Member{ID: m.ID, Voter: m.Voter})
	}
	if s.leader {
		g.leader = name(0)
	}
	return Config{
		ID: func() string { return name(s.self) }, Leased: func() bool { return s.leased }, Members: func() []gossip.Member { return members },
		Group: func() Group {
			if !s.votes {
				return nil
			}
			return g
		},
	}
}

// want returns the numbers in the error, and whether there is one.
func (s situation) want() (alive, needed int, fails bool) {
	for i := range s.voters {
		if i == s.self || s.alive&(1<<i) != 0 {
			alive++
		}
	}
	needed = s.voters/2 + 1
	switch {
	case s.leased:
		return alive, needed, false
	case s.votes: // it knows whether there is a leader
		return alive, needed, !s.leader
	}
	return alive, needed, alive < needed // it only knows whether there can be one
}

// TestAllSituations: the check fails exactly if the node's lease has expired and, by what the node knows, there is no leader. The error states
// how many voters are alive and how many are needed, and what to do. It can be retried.
func TestAllSituations(t *testing.T) {
	both := []bool{false, true}
	for voters := range nodes + 1 {
		for alive := range 1 << nodes {
			for self := range nodes {
				for _, votes := range both {
					for _, leader := range both {
						for _, leased := range both {
							check(t, situation{voters, alive, self, votes, leader, leased})
						}
					}
				}
			}
		}
	}
}

func check(t *testing.T, s situation) {
	t.Helper()
	alive, needed, fails := s.want()
	err := s.config().Check()
	if (err != nil) != fails {
		t.Fatalf("%+v: %v, want an error: %v", s, err, fails)
	}
	if err == nil {
		return
	}
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != rpc.CodeUnavailable || !e.Retryable {
		t.Fatalf("%+v: %#v", s, err)
	}
	counts := fmt.Sprintf("%d of its %d voters are alive, and %d are needed", alive, s.voters, needed)
	if !strings.Contains(e.Message, counts) {
		t.Fatalf("%+v: %q, want %q", s, e.Message, counts)
	}
	if advice := strings.Contains(e.Message, "stele raft recover"); advice != (alive < needed) {
		t.Fatalf("%+v: %q, %d are needed", s, e.Message, needed)
	}
}

// TestNamesOfVotersThatAreDown: the error names the voters to start, and has the numbers as details.
func TestNamesOfVotersThatAreDown(t *testing.T) {
	q := Config{
		ID: func() string { return "n1" }, Leased: func() bool { return false },
		Members: func() []gossip.Member {
			return []gossip.Member{{Meta: gossip.Meta{ID: "n3", Name: "east"}, State: gossip.Dead}, {Meta: gossip.Meta{ID: "n4", Name: "west"}, State: gossip.Dead}}
		},
		Group: func() Group {
			return &group{members: []raftmeta.Member{{ID: "n1", Voter: true}, {ID: "n2", Voter: true}, {ID: "n3", Voter: true}, {ID: "n4"}}}
		},
	}
	var e *rpc.Error
	if err := q.Check(); !errors.As(err, &e) || !strings.Contains(e.Message, ": start east, n2; ") {
		t.Fatalf("%v", err)
	}
	if e.Details["voters"] != 3 || e.Details["voters_alive"] != 1 {
		t.Errorf("details: %v", e.Details)
	}
}

// TestUnknownVoters: a voter that gossip does not have counts as one that is not alive, and a member of gossip that does not vote does not
// count.
func TestUnknownVoters(t *testing.T) {
	q := Config{
		ID: func() string { return "n1" }, Leased: func() bool { return false },
		Members: func() []gossip.Member {
			return []gossip.Member{{Meta: gossip.Meta{ID: "n9", Voter: true}, State: gossip.Alive}, {Meta: gossip.Meta{ID: "n2"}, State: gossip.Alive}}
		},
		Group: func() Group {
			return &group{members: []raftmeta.Member{{ID: "n1", Voter: true}, {ID: "n2", Voter: true}, {ID: "n3", Voter: true}, {ID: "n9"}}}
		},
	}
	if err := q.Check(); err == nil || !strings.Contains(err.Error(), "2 of its 3 voters are alive") {
		t.Errorf("by the group: %v", err)
	}
}
