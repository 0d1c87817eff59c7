package node

import (
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// One user may hold a quarter of what all users together may hold in the lock service: if three users take all they can, a fourth
// still gets as much. All of it is in the memory of each voter, so the limits are fractions of the leader's memory.
const (
	lockUserShare = 4 // divisor of what all users may hold
	// lockMemoryShare and lockLeaderShare are divisors of a node's memory: for users' files, locks and sessions, and for the leader's
	// state of their sessions.
	lockMemoryShare, lockLeaderShare = 80, 512
	// lockBytesMost leaves half of the namespace to the cluster.
	lockBytesMost = raftmeta.NamespaceBytesMax / 2
)

// openClients is the owner of what clients of an open cluster hold. They are not distinguished, so together they may hold what all
// users may.
const openClients = "(clients)"

// lockShare returns the share of the lock service of a user.
func (c Config) lockShare(owner string) raftmeta.Quota {
	s := raftmeta.Quota{
		Owner: owner, AllBytes: min(c.MemoryBytes/lockMemoryShare, lockBytesMost), AllLeaderBytes: c.MemoryBytes / lockLeaderShare,
		AllSessions: metaapi.SessionsMax - metaapi.SessionsForNodes,
	}
	part := int64(lockUserShare)
	if owner == openClients {
		part = 1
	}
	s.Bytes, s.LeaderBytes, s.Sessions = s.AllBytes/part, s.AllLeaderBytes/part, s.AllSessions/part
	return s
}
