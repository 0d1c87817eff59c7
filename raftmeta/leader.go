package raftmeta

import (
	"sync"

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
	return g.leaderID(), g.raft.CurrentTerm()
}

// LeaderChanges returns a channel that is closed when the result of Leader has changed. The caller
// must call it before Leader.
func (g *Group) LeaderChanges() <-chan struct{} {
	g.leader.mu.Lock()
	defer g.leader.mu.Unlock()
	return g.leader.mu.changed
}
