package raftmeta

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// leaderWatch tells of changes of the leader.
type leaderWatch struct {
	// seen wakes the watcher. Raft drops what does not fit, and one is enough.
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

// watchLeader passes on raft's word of who leads, until raft ends.
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

// Leader returns the id of the server that leads the group, as far as this one
// knows, and this one's term. The id is empty when it knows of none. A leader
// may have been superseded: only it can find out, by asking the others.
func (g *Group) Leader() (id string, term uint64) {
	_, leader := g.raft.LeaderWithID()
	return string(leader), g.raft.CurrentTerm()
}

// LeaderChanges returns a channel that is closed when what Leader returns has
// changed. Ask for it before Leader.
func (g *Group) LeaderChanges() <-chan struct{} {
	g.leader.mu.Lock()
	defer g.leader.mu.Unlock()
	return g.leader.mu.changed
}

// connLost is told that a connection from another server has ended. When that
// is the leader its process may have, and suspectLoop looks. It does not block.
func (g *Group) connLost(from string) {
	if _, leader := g.raft.LeaderWithID(); string(leader) != from {
		return
	}
	select {
	case g.suspected <- from:
	default:
	}
}

// suspectStagger parts the elections that the voters call when they all find
// the leader gone: longer than one takes, so that the first usually wins.
const suspectStagger = 60 * time.Millisecond

// suspectLoop has an election called as soon as the leader's process is known
// to have ended, instead of a heartbeat timeout later: when its connections
// have ended, and it takes no further one. One that is cut off, or hangs, does
// neither. Calling an election for nothing would do no harm but the pause.
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
	if !g.gone(id) {
		return
	}
	// Each voter waits for those before it, in order of their ids.
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
		return // it goes on already
	}
	servers := g.raft.GetConfiguration().Configuration().Servers
	if self := serverOf(servers, g.cfg.ID); self == nil || self.Suffrage != raft.Voter || !slices.Contains(others, id) {
		return
	}
	if g.raft.State() == raft.Leader || !g.gone(id) {
		return
	}
	g.log.Info("raftmeta: the leader's process has ended, an election is called", "leader", id, "term", term)
	_, _ = g.trans.dispatch(&raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, nil)
}

// gone tells whether server id refuses connections, which takes no time. One
// that does not answer at all is left to the heartbeat timeout.
func (g *Group) gone(id string) bool {
	start := time.Now()
	_, err := g.trans.term(id)
	return err != nil && time.Since(start) < quickTimeout/4
}
