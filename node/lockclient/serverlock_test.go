package lockclient

import (
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
