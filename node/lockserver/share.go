package lockserver

import (
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// One user may hold a quarter of what all users together may hold in the lock service: if three users take all they can, a fourth
// still gets as much. All of it is in the memory of each voter, so the limits are fractions of the leader's memory.
const (
	userShare = 4 // divisor of what all users may hold
	// memoryShare and leaderShare are divisors of a node's memory: for users' files, locks and sessions, and for the leader's
	// state of their sessions.
	memoryShare, leaderShare = 80, 512
	// bytesMost leaves half of the namespace to the cluster.
	bytesMost = raftmeta.NamespaceBytesMax / 2
)

// ShareOf returns what a user may hold of the lock service if the leader has so much memory. Together, the clients of an open cluster may
// hold what all users may.
func ShareOf(memoryBytes int64, owner string) raftmeta.Quota {
	s := raftmeta.Quota{
		Owner: owner, AllBytes: min(memoryBytes/memoryShare, bytesMost), AllLeaderBytes: memoryBytes / leaderShare,
		AllSessions: metaapi.SessionsMax - metaapi.SessionsForNodes,
	}
	part := int64(userShare)
	if owner == authz.OpenClients {
		part = 1
	}
	s.Bytes, s.LeaderBytes, s.Sessions = s.AllBytes/part, s.AllLeaderBytes/part, s.AllSessions/part
	return s
}
