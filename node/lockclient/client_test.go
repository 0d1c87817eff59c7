package lockclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// TestUntilLeader: a node waits for a leader, for one whose disk is full, and for the outcome of a change, and for nothing else.
func TestUntilLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := New(Config{Log: slog.New(slog.DiscardHandler)})
		answers := []error{metaapi.ErrNotReady, fmt.Errorf("open session: %w", metaapi.ErrDiskFull), metaapi.ErrNotReady, metaapi.ErrOutcomeUnknown, metaapi.ErrNotFound}
		calls := 0
		err := cl.UntilLeader(t.Context(), func(context.Context) error {
			calls++
			return answers[calls-1]
		})
		if !errors.Is(err, metaapi.ErrNotFound) || calls != len(answers) {
			t.Errorf("%v after %d calls", err, calls)
		}
	})
}

// The client looks for the leader on this node if it votes, then on live voters, then on all others, each once.
func TestServers(t *testing.T) {
	member := func(name string, voter bool, state gossip.State) gossip.Member {
		m := gossip.Member{State: state}
		m.ID, m.RPC, m.Voter = name, name+":1", voter
		return m
	}
	self := member("n1", true, gossip.Alive)
	self.Self = true
	members := []gossip.Member{self, member("n2", false, gossip.Alive), member("n3", true, gossip.Alive), member("n4", true, gossip.Dead)}
	var group Group
	cl := New(Config{
		Self: &identity.Self{Address: "n1:1"}, Group: func() Group { return group }, Members: func() []gossip.Member { return members },
		Addresses: func() []string { return []string{"n2:1", "n3:1", "n4:1", "n5:1"} },
	})
	expect := func(first []string, others ...string) {
		t.Helper()
		got := leaderLocator{cl}.Servers()
		n := min(len(first), len(got))
		rest := slices.Sorted(slices.Values(got[n:]))
		if !slices.Equal(got[:n], first) || !slices.Equal(rest, others) {
			t.Errorf("got %v, want %v and then %v", got, first, others)
		}
	}
	expect([]string{"n3:1"}, "n2:1", "n4:1", "n5:1")
	var elsewhere *metaapi.NotLeaderError
	if _, err := (leaderDialer{cl}).Dial(t.Context(), "n1:1"); !errors.As(err, &elsewhere) || elsewhere.Leader != "n3" || elsewhere.Address != "n3:1" {
		t.Errorf("this node does not vote: %v", err)
	}
	group = ownGroup{}
	expect([]string{"n1:1", "n3:1"}, "n2:1", "n4:1", "n5:1")
	if peer, err := (leaderDialer{cl}).Dial(t.Context(), "n1:1"); err != nil || peer.Service != group.Service() {
		t.Errorf("this node votes: %v", err)
	}
	members = nil // gossip is off
	group = nil
	expect(nil, "n2:1", "n3:1", "n4:1", "n5:1")
}

// ownGroup is the node's group. It implements Group.
type ownGroup struct{}

func (ownGroup) Service() metaapi.Service { return ownService{} }

func (ownGroup) OnlyMember() bool { return false }

type ownService struct{ metaapi.Service }
