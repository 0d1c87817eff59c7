package api

import "github.com/steledb/stele/internal/wire"

// RaftStatus is the result of raft_status: the lock service's group, from the view of the node that
// answers. Leader and master may have changed meanwhile.
type RaftStatus struct {
	Cluster string `json:"cluster"`
	// Leader is the leader's id, or empty if none is known.
	Leader     string `json:"leader"`
	LeaderName string `json:"leader_name"`
	Term       uint64 `json:"term"`
	// Applied is the last log entry applied on the leader, LastIndex the last one in its log.
	Applied   uint64 `json:"applied"`
	LastIndex uint64 `json:"last_index"`
	// RaftEpoch grows when the group is restored from the remains of a former one.
	RaftEpoch uint64 `json:"raft_epoch"`
	// Master is the master's id, or empty if there is none. MasterEpoch grows with each new master.
	Master      string `json:"master"`
	MasterName  string `json:"master_name"`
	MasterEpoch uint64 `json:"master_epoch"`

	Sessions    int64 `json:"sessions"`
	Files       int64 `json:"files"`
	Directories int64 `json:"directories"`
	Bytes       int64 `json:"bytes"` // of the files' contents

	Servers []RaftServer `json:"servers"`
}

// RaftServer is a member of the group.
type RaftServer struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Zone   string `json:"zone"`
	State  string `json:"state"` // NodeAlive or another state
	Voter  bool   `json:"voter"` // it votes; non-voters only receive the log
	Leader bool   `json:"leader"`
	Alive  bool   `json:"alive"` // in contact with the leader
	// LastContactMS is the time since the leader's last contact with it; -1 if unknown.
	LastContactMS int64 `json:"last_contact_ms"`
	// Lag is the number of entries by which it is behind the leader; 0 if unknown.
	Lag uint64 `json:"lag"`
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
