package lockclient

import (
	"errors"
	"testing"

	"github.com/steledb/stele/raftmeta"
)

// A node whose log has no members yet is not the only member: it waits for its lock like any other, and asks other nodes for the leader.
func TestIsOnlyMember(t *testing.T) {
	me, other := raftmeta.Member{ID: "n1", Voter: true}, raftmeta.Member{ID: "n2", Voter: true}
	for _, c := range []struct {
		members []raftmeta.Member
		want    bool
	}{
		{[]raftmeta.Member{me}, true},
		{nil, false},
		{[]raftmeta.Member{other}, false},
		{[]raftmeta.Member{me, other}, false},
	} {
		if got := isOnlyMember(c.members, "n1"); got != c.want {
			t.Errorf("members %v: only member: %t", c.members, got)
		}
	}
}

// A lock that the session of the node's previous run still holds, because the lock service could not end it, is waited for. Only a holder at
// another address is another process.
func TestHeldError(t *testing.T) {
	for holder, want := range map[string]bool{"10.0.0.1:7106": false, "10.0.0.2:7106": true, "": true} {
		if err := heldError(instance{RPC: holder}, "n1", "10.0.0.1:7106"); errors.Is(err, errOtherInstance) != want {
			t.Errorf("holder at %q: %v", holder, err)
		}
	}
}
