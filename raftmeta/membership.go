package raftmeta

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/planted"
)

// membership is this server's knowledge of the group's configurations that raft does not expose:
// the log index of the latest one, and which one is committed.
type membership struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		// latest is the newest configuration in the log, committed or not. previous is the one
		// before it. It is committed, because members change one at a time, but it may not be
		// applied here yet.
		committed, latest, previous configuration
	}
	// several is set if the latest configuration has more than one voter.
	several atomic.Bool
	// removed is set once another server reported that this one is not a member.
	removed atomic.Bool
}

// configuration is a list of members, and the index of its log entry.
type configuration struct {
	index   uint64
	servers []raft.Server
}

// Logged records a configuration that is in the log.
func (m *membership) Logged(l *raft.Log) {
	servers, err := decodeMembers(l.Data)
	if err != nil {
		return // raft reports it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case l.Index > m.mu.latest.index:
		m.mu.previous = m.mu.latest
		m.setLatestLocked(configuration{l.Index, servers})
	case l.Index == m.mu.latest.index:
		m.setLatestLocked(configuration{l.Index, servers})
	}
}

// Truncated records that the log now ends before index. A configuration at or after index was not
// committed, and the one before it applies again.
func (m *membership) Truncated(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.latest.index < index || planted.On(planted.MembersHidden) {
		return
	}
	back := m.mu.committed
	if p := m.mu.previous; p.index < index && p.index > back.index {
		back = p
	}
	m.setLatestLocked(back)
	m.mu.previous = back
}

func (m *membership) setLatestLocked(c configuration) {
	m.mu.latest = c
	m.several.Store(voters(c.servers) > 1)
}

// commit records that a configuration is committed.
func (m *membership) commit(index uint64, servers []raft.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := configuration{index, servers}
	if index >= m.mu.committed.index {
		m.mu.committed = c
	}
	if index >= m.mu.latest.index {
		m.setLatestLocked(c)
	}
}

// restored records the configuration of the newest snapshot.
func (m *membership) restored(snaps *storage.Snapshots) error {
	metas, err := snaps.List()
	if err == nil && len(metas) > 0 {
		m.commit(metas[0].ConfigurationIndex, metas[0].Configuration.Servers)
	}
	return err
}

// find returns the index of the latest configuration, and whether it has that server.
func (m *membership) find(id string) (index uint64, member bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.latest.index, serverOf(m.mu.latest.servers, id) != nil
}

// isMember reports whether id may be a member of the group. It is not if it is in neither the
// committed configuration, whose index is returned, nor the latest one.
func (m *membership) isMember(id string) (bool, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	committed, latest := m.mu.committed, m.mu.latest
	if len(committed.servers) == 0 || serverOf(committed.servers, id) != nil || serverOf(latest.servers, id) != nil {
		return true, 0
	}
	return false, committed.index
}

// removedAt reports whether this server was removed by a configuration that the group has committed
// at index: whether it knows of no later one. It returns true only once.
func (m *membership) removedAt(index uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.latest.index != 0 && index >= m.mu.latest.index && m.removed.CompareAndSwap(false, true)
}

// serverOf returns the server with that id, or nil.
func serverOf(servers []raft.Server, id string) *raft.Server {
	for i := range servers {
		if string(servers[i].ID) == id {
			return &servers[i]
		}
	}
	return nil
}

// notMember is called when another server reports that this one is not a member.
func (g *Group) notMember(e *notMemberError) {
	if !g.members.removedAt(e.index) {
		return
	}
	g.log.Warn("raftmeta: this server was removed from the group", "reported_by", e.from, "entry", e.index)
	if g.cfg.OnRemoved != nil {
		go g.cfg.OnRemoved()
	}
}

// memberLoop detects that this server was removed. A server that calls no elections, and has no contact
// from a leader, periodically asks the other voters. Other servers learn it when they request votes.
// Raft itself does not notify a removed server.
func (g *Group) memberLoop() {
	tick := time.NewTicker(2 * g.cfg.HeartbeatTimeout)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.closing:
			return
		}
		servers := g.raft.GetConfiguration().Configuration().Servers
		self := serverOf(servers, g.cfg.ID)
		calls := self != nil && self.Suffrage == raft.Voter && g.invited.pending.Load() == nil
		if calls || time.Since(g.raft.LastContact()) < 2*g.cfg.HeartbeatTimeout {
			continue
		}
		for _, s := range servers {
			select {
			case <-g.closing:
				return
			default:
			}
			if s.Suffrage == raft.Voter && string(s.ID) != g.cfg.ID {
				// No voter grants a vote to a candidate of term zero.
				_ = g.trans.RequestPreVote(s.ID, s.Address, &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
			}
		}
	}
}
