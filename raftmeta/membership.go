package raftmeta

import (
	"io"
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
		// latest is the newest in the log, committed or not. previous is the
		// one before it: one change is made at a time, so it is committed, even
		// if it has not been applied here yet.
		committed, latest, previous configuration
	}
	// several is set when the latest one has more than one voter.
	several atomic.Bool
	// gone is set when this server was told that it is no member.
	gone atomic.Bool
}

// configuration is a list of members, and the index of its log entry.
type configuration struct {
	index   uint64
	servers []raft.Server
}

// logged records a configuration that is in the log.
func (m *membership) logged(l *raft.Log) {
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

// truncated records that the log ends before index: a configuration that stood
// there or later was not committed, and the one before it is in force again.
func (m *membership) truncated(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.latest.index < index {
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
	committed, latest := m.mu.committed, m.mu.latest
	if len(committed.servers) == 0 || serverOf(committed.servers, id) != nil || serverOf(latest.servers, id) != nil {
		return true, 0
	}
	return false, committed.index
}

// removedAt tells whether a group that has committed a configuration without
// this server, at index, has removed it: whether this server does not know of
// a later one. It does so once.
func (m *membership) removedAt(index uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.latest.index != 0 && index >= m.mu.latest.index && m.gone.CompareAndSwap(false, true)
}

// raftFSM is the machine in raft's hands, together with what raft tells of the
// members and of snapshots.
type raftFSM struct {
	*machine
	members *membership
	store   *logStore
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

// Snapshot implements raft.FSM. There is none before the first command: it would
// end with entry 1, and a leader that lacks entry 1 does not send the snapshot
// in its place, because raft looks for the entry before.
func (r *raftFSM) Snapshot() (raft.FSMSnapshot, error) {
	f := r.freeze()
	if f.applied == 0 {
		return nil, raft.ErrNothingNewToSnapshot
	}
	f.persisted = r.covered
	return f, nil
}

// Restore implements raft.FSM.
func (r *raftFSM) Restore(source io.ReadCloser) error {
	if err := r.machine.Restore(source); err != nil {
		return err
	}
	for {
		if f, ok := source.(*snapshotFile); ok {
			r.covered(f.meta)
			return nil
		}
		w, ok := source.(raft.ReadCloserWrapper)
		if !ok {
			return nil
		}
		source = w.WrappedReadCloser()
	}
}

// covered records that the state in memory and a snapshot of that description
// both cover the entries up to its last.
func (r *raftFSM) covered(meta *raft.SnapshotMeta) {
	r.members.commit(meta.ConfigurationIndex, meta.Configuration.Servers)
	r.store.covered(entryID{meta.Index, meta.Term})
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
