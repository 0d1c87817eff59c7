package node

import (
	"testing"

	"github.com/steledb/stele/raftmeta"
)

// A node whose log has no members yet is not alone: it waits for its lock like any other, and asks other nodes for the leader.
func TestIsAlone(t *testing.T) {
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
			t.Errorf("members %v: alone is %t", c.members, got)
		}
	}
}
