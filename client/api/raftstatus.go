package api

import "github.com/steledb/stele/internal/wire"

// RaftStatus is the result of raft_status: the lock service's group, from the view of the node that
// answers. Leader and master may have changed meanwhile.
type RaftStatus struct {
	Cluster string
	// Leader is the leader's id, or empty if none is known.
	Leader, LeaderName string
	Term               uint64
	// Applied is the last log entry applied on the leader, LastIndex the last one in its log.
	Applied, LastIndex uint64
	// RaftEpoch grows when the group is restored from the remains of a former one.
	RaftEpoch uint64
	// Master is the master's id, or empty if there is none. MasterEpoch grows with each new master.
	Master, MasterName string
	MasterEpoch        uint64

	Sessions           int64
	Files, Directories int64
	Bytes              int64 // of the files' contents

	Servers []RaftServer
}

// RaftServer is a member of the group.
type RaftServer struct {
	ID, Name, Zone string
	State          string // NodeAlive or another state
	Voter          bool   // it votes; non-voters only receive the log
	Leader         bool
	Alive          bool // in contact with the leader
	// LastContactMS is the time since the leader's last contact with it; -1 if unknown.
	LastContactMS int64
	// Lag is the number of entries by which it is behind the leader; 0 if unknown.
	Lag uint64
}

// serversMax is the maximum number of members of the group that a client decodes.
const serversMax = 1000

func (s *RaftStatus) fields() fields {
	return fields{
		{"cluster", &s.Cluster}, {"leader", &s.Leader}, {"leader_name", &s.LeaderName},
		{"master", &s.Master}, {"master_name", &s.MasterName},
		{"term", &s.Term}, {"applied", &s.Applied}, {"last_index", &s.LastIndex},
		{"raft_epoch", &s.RaftEpoch}, {"master_epoch", &s.MasterEpoch},
		{"sessions", &s.Sessions}, {"files", &s.Files}, {"directories", &s.Directories}, {"bytes", &s.Bytes},
		{"servers", &list[RaftServer]{
			all: &s.Servers, fields: (*RaftServer).fields, what: "servers", max: serversMax, empty: RaftServer{LastContactMS: -1},
		}},
	}
}

func (s *RaftServer) fields() fields {
	return fields{
		{"id", &s.ID}, {"name", &s.Name}, {"zone", &s.Zone}, {"state", &s.State},
		{"voter", &s.Voter}, {"leader", &s.Leader}, {"alive", &s.Alive},
		{"last_contact_ms", &s.LastContactMS}, {"lag", &s.Lag},
	}
}

// Append encodes the result.
func (s *RaftStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *RaftStatus) Decode(d *wire.Decoder) error {
	*s = RaftStatus{}
	return s.fields().decode(d)
}
