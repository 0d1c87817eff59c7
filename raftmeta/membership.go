package raftmeta

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// membership is what this server knows of the group's configurations, which
// raft keeps to itself: at which entry the latest one stands, and which is
// committed.
type membership struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		latest, committed uint64 // indexes
		// servers are those of the committed one, and newest those of the
		// latest.
		servers, newest []raft.Server
	}
	// several is set when the latest one has more than one voter.
	several atomic.Bool
	// gone is set when this server was told that it is no member.
	gone atomic.Bool
}

// logged notes a configuration that stands in the log.
func (m *membership) logged(l *raft.Log) {
	servers, err := decodeMembers(l.Data)
	if err != nil {
		return // raft reports it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A configuration that was not committed may be replaced by one with a
	// smaller index; the one after that sets it right.
	if l.Index >= m.mu.latest {
		m.mu.latest, m.mu.newest = l.Index, servers
		m.several.Store(voters(servers) > 1)
	}
}

// commit notes that a configuration is committed.
func (m *membership) commit(index uint64, servers []raft.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index >= m.mu.committed {
		m.mu.committed, m.mu.servers = index, servers
	}
	if index >= m.mu.latest {
		m.mu.latest, m.mu.newest = index, servers
		m.several.Store(voters(servers) > 1)
	}
}

// restored notes the configuration of the newest snapshot.
func (m *membership) restored(snaps *snapshotStore) error {
	metas, err := snaps.List()
	if err == nil && len(metas) > 0 {
		m.commit(metas[0].ConfigurationIndex, metas[0].Configuration.Servers)
	}
	return err
}

// isMember tells whether id may be a member of the group: not when both the
// committed configuration, at the index returned, and the latest lack it.
func (m *membership) isMember(id string) (bool, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.servers) == 0 || serverOf(m.mu.servers, id) != nil || serverOf(m.mu.newest, id) != nil {
		return true, 0
	}
	return false, m.mu.committed
}

// removedAt tells whether a group that has committed a configuration without
// this server, at index, has removed it: whether this server does not know of
// a later one. It does so once.
func (m *membership) removedAt(index uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.latest != 0 && index >= m.mu.latest && m.gone.CompareAndSwap(false, true)
}

// raftFSM is the machine in raft's hands, together with what raft tells of
// the members.
type raftFSM struct {
	*machine
	members *membership
}

// ApplyBatch implements raft.BatchingFSM.
func (r *raftFSM) ApplyBatch(logs []*raft.Log) []any {
	for _, l := range logs {
		if l.Type != raft.LogConfiguration {
			continue
		}
		if servers, err := decodeMembers(l.Data); err == nil {
			r.members.commit(l.Index, servers)
		}
	}
	return r.machine.ApplyBatch(logs)
}

// serverOf returns the server of that id, or nil.
func serverOf(servers []raft.Server, id string) *raft.Server {
	for i := range servers {
		if string(servers[i].ID) == id {
			return &servers[i]
		}
	}
	return nil
}

// stallTimeout is how long a write of the log may take.
func (g *Group) stallTimeout() time.Duration {
	if g.members.several.Load() {
		return min(g.cfg.StallTimeout, stallTimeoutMax)
	}
	return g.cfg.StallTimeout
}

// notMember is told that another server does not count this one as a member.
func (g *Group) notMember(e *notMemberError) {
	if !g.members.removedAt(e.index) {
		return
	}
	g.log.Warn("raftmeta: this server was removed from the group", "told by", e.from, "entry", e.index)
	if g.cfg.OnRemoved != nil {
		go g.cfg.OnRemoved()
	}
}

// memberLoop has a server find out that it was removed: one that has no vote and
// hears from no leader asks the others now and then. One that still thinks that
// it votes learns it when it asks for votes; raft tells it to nobody else.
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
		if self != nil && self.Suffrage == raft.Voter || time.Since(g.raft.LastContact()) < 2*g.cfg.HeartbeatTimeout {
			continue
		}
		for _, s := range servers {
			select {
			case <-g.closing:
				return
			default:
			}
			if s.Suffrage == raft.Voter && string(s.ID) != g.cfg.ID {
				// Nobody votes for a candidate of term zero.
				_ = g.trans.RequestPreVote(s.ID, s.Address, &raft.RequestPreVoteRequest{}, &raft.RequestPreVoteResponse{})
			}
		}
	}
}
