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

// counter is an unsigned number of a result and its key.
type counter struct {
	key   string
	value *uint64
}

func (s *RaftStatus) texts() []text {
	return []text{
		{"cluster", &s.Cluster}, {"leader", &s.Leader}, {"leader_name", &s.LeaderName},
		{"master", &s.Master}, {"master_name", &s.MasterName},
	}
}

func (s *RaftStatus) counters() []counter {
	return []counter{
		{"term", &s.Term}, {"applied", &s.Applied}, {"last_index", &s.LastIndex}, {"raft_epoch", &s.RaftEpoch}, {"master_epoch", &s.MasterEpoch},
	}
}

func (s *RaftStatus) figures() []figure {
	return []figure{{"sessions", &s.Sessions}, {"files", &s.Files}, {"directories", &s.Directories}, {"bytes", &s.Bytes}}
}

// Append writes the result.
func (s *RaftStatus) Append(e *wire.Encoder) {
	texts, counters, figures := s.texts(), s.counters(), s.figures()
	e.Map(len(texts) + len(counters) + len(figures) + 1)
	appendTexts(e, texts)
	for _, c := range counters {
		e.Str(c.key)
		e.Uint(*c.value)
	}
	for _, f := range figures {
		e.Str(f.key)
		e.Int(*f.value)
	}
	e.Str("servers")
	e.Array(len(s.Servers))
	for i := range s.Servers {
		s.Servers[i].append(e)
	}
}

// serversMax bounds the members of the group that a client reads.
const serversMax = 1000

// Decode reads the result.
func (s *RaftStatus) Decode(d *wire.Decoder) error {
	*s = RaftStatus{}
	texts, counters, figures := s.texts(), s.counters(), s.figures()
	return decodeMap(d, func(key string) bool {
		if key == "servers" {
			stick(d, decodeList(d, "servers", serversMax, func() error {
				s.Servers = append(s.Servers, RaftServer{})
				return s.Servers[len(s.Servers)-1].decode(d)
			}))
			return true
		}
		for _, c := range counters {
			if c.key == key {
				*c.value = d.Uint()
				return true
			}
		}
		return decodeText(d, key, texts) || decodeFigure(d, key, figures)
	})
}

func (s *RaftServer) texts() []text {
	return []text{{"id", &s.ID}, {"name", &s.Name}, {"zone", &s.Zone}, {"state", &s.State}}
}

func (s *RaftServer) flags() []flag {
	return []flag{{"voter", &s.Voter}, {"leader", &s.Leader}, {"alive", &s.Alive}}
}

func (s *RaftServer) append(e *wire.Encoder) {
	texts, flags := s.texts(), s.flags()
	e.Map(len(texts) + len(flags) + 2)
	appendTexts(e, texts)
	appendFlags(e, flags)
	e.Str("last_contact_ms")
	e.Int(s.LastContactMS)
	e.Str("lag")
	e.Uint(s.Lag)
}

func (s *RaftServer) decode(d *wire.Decoder) error {
	s.LastContactMS = -1
	texts, flags := s.texts(), s.flags()
	return decodeMap(d, func(key string) bool {
		switch key {
		case "last_contact_ms":
			s.LastContactMS = d.Int()
		case "lag":
			s.Lag = d.Uint()
		default:
			return decodeText(d, key, texts) || decodeFlag(d, key, flags)
		}
		return true
	})
}
