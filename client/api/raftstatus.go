package api

import "github.com/steledb/stele/internal/wire"

// RaftStatus is the result of raft_status: the lock service's group, as the node
// that answers knows it. Leader and master may have changed meanwhile.
type RaftStatus struct {
	Cluster string
	// Leader is the leader's id, empty if none is known.
	Leader, LeaderName string
	Term               uint64
	// Applied is the last entry of the log that took effect on the leader, LastIndex the
	// last that it has.
	Applied, LastIndex uint64
	// RaftEpoch grows when the group is founded anew from what was left of it.
	RaftEpoch uint64
	// Master is the master's id, empty if there is none. MasterEpoch grows with each
	// new one.
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
	State          string // one of NodeAlive and its siblings
	Voter          bool   // it votes; others only get the log
	Leader         bool
	Alive          bool // the leader hears of it
	// LastContactMS is how long ago the leader last heard of it; -1 is unknown.
	LastContactMS int64
	// Lag is how many entries it is behind the leader; 0 if unknown.
	Lag uint64
}

// serversMax bounds the members of the group that a client reads.
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

// Append writes the result.
func (s *RaftStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode reads the result.
func (s *RaftStatus) Decode(d *wire.Decoder) error {
	*s = RaftStatus{}
	return s.fields().decode(d)
}
