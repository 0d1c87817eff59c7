package node

import (
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// A user may hold a quarter of what all users together may hold in the lock
// service: three users that take all they can leave a fourth as much. All of it
// is in the memory of each voter, so the limits are parts of the leader's.
const (
	lockUserShare = 4 // one user has one part in so many
	// lockMemoryShare is the part of a node's memory for users' files, locks and
	// sessions, lockLeaderShare that for what the leader keeps for their sessions.
	lockMemoryShare, lockLeaderShare = 80, 512
	// lockBytesMost leaves half of the namespace to the cluster on nodes of any size.
	lockBytesMost = raftmeta.NamespaceBytesMax / 2
)

// openClients owns what clients of a cluster without access control hold. They
// are not told apart, so together they may hold what all users may.
const openClients = "(clients)"

// lockShare returns the share of the lock service of a user.
func (c Config) lockShare(owner string) raftmeta.Share {
	s := raftmeta.Share{
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
