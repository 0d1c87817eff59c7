package raftmeta

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// leaderWatch reports changes of the leader.
type leaderWatch struct {
	// seen wakes the watcher. Raft drops observations while it is full; one is enough.
	seen chan raft.Observation
	// mu guards the field in it.
	mu struct {
		sync.Mutex
		changed chan struct{}
	}
}

func newLeaderWatch() *leaderWatch {
	w := &leaderWatch{seen: make(chan raft.Observation, 1)}
	w.mu.changed = make(chan struct{})
	return w
}

// watchLeader forwards raft's observations of the leader until raft stops.
func (g *Group) watchLeader() {
	g.raft.RegisterObserver(raft.NewObserver(g.leader.seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	g.watcher.Go(func() {
		for {
			select {
			case <-g.leader.seen:
				g.leader.mu.Lock()
				close(g.leader.mu.changed)
				g.leader.mu.changed = make(chan struct{})
				g.leader.mu.Unlock()
			case <-g.raftStopped:
				return
			}
		}
	})
}

// Leader returns the id of the leader as far as this server knows, and this server's term. The id
// is empty if no leader is known. The leader may have been superseded: only the leader itself can
// find out, by verifying its leadership.
func (g *Group) Leader() (id string, term uint64) {
	_, leader := g.raft.LeaderWithID()
	return string(leader), g.raft.CurrentTerm()
}

// LeaderChanges returns a channel that is closed when the result of Leader has changed. The caller
// must call it before Leader.
func (g *Group) LeaderChanges() <-chan struct{} {
	g.leader.mu.Lock()
	defer g.leader.mu.Unlock()
	return g.leader.mu.changed
}

// connLost is called when a connection from another server has ended. If that server is the leader,
// its process may have exited, and suspectLoop checks. connLost does not block.
func (g *Group) connLost(from string) {
	if _, leader := g.raft.LeaderWithID(); string(leader) != from {
		return
	}
	select {
	case g.suspected <- from:
	default:
	}
}

// suspectStagger separates the elections that the voters call when they all lose the leader. It is
// longer than an election takes, so that the first one usually wins.
const suspectStagger = 60 * time.Millisecond

// suspectLoop calls an election as soon as the leader's process has exited, rather than a heartbeat
// timeout later: its connections have ended, and it refuses new ones. A leader that is partitioned
// or hangs shows neither. An unnecessary election does no harm except the interruption.
func (g *Group) suspectLoop() {
	for {
		select {
		case id := <-g.suspected:
			g.suspect(id)
		case <-g.closing:
			return
		}
	}
}

func (g *Group) suspect(id string) {
	term := g.raft.CurrentTerm()
	if !g.refusesConnections(id) {
		return
	}
	// Each voter waits for those with smaller ids.
	others, _ := g.otherVoters()
	rank := 0
	for _, o := range others {
		if o < g.cfg.ID && o != id {
			rank++
		}
	}
	pause := time.Duration(rank)*suspectStagger + rand.N(suspectStagger/6)
	select {
	case <-time.After(pause):
	case <-g.closing:
		return
	}
	if _, leader := g.raft.LeaderWithID(); g.raft.CurrentTerm() != term || string(leader) != id && leader != "" {
		return // an election has begun already
	}
	servers := g.raft.GetConfiguration().Configuration().Servers
	if self := serverOf(servers, g.cfg.ID); self == nil || self.Suffrage != raft.Voter || !slices.Contains(others, id) {
		return
	}
	if g.raft.State() == raft.Leader || !g.refusesConnections(id) {
		return
	}
	g.log.Info("raftmeta: leader process exited, calling an election", "leader", id, "term", term)
	_, _ = g.trans.dispatch(&raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, nil)
}

// refusesConnections reports whether the server refuses connections, which is an immediate error. A server that
// does not answer at all is left to the heartbeat timeout.
func (g *Group) refusesConnections(id string) bool {
	start := time.Now()
	_, err := g.trans.term(id)
	return err != nil && time.Since(start) < quickTimeout/4
}
