package raftmeta

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// failureDetector calls an election when the process of the leader has exited.
type failureDetector struct {
	*core
	// suspected has the id of a leader whose process may have exited. Its capacity is one.
	suspected chan string
}

func newFailureDetector(c *core) *failureDetector {
	return &failureDetector{core: c, suspected: make(chan string, 1)}
}

// suspectStagger separates the elections that the voters call when they all lose the leader. It is
// longer than an election takes, so that the first one usually wins.
const suspectStagger = 60 * time.Millisecond

// connLost is called when a connection from another server has ended. If that server is the leader,
// its process may have exited, and loop checks. connLost does not block.
func (d *failureDetector) connLost(from string) {
	if _, leader := d.raft.LeaderWithID(); string(leader) != from {
		return
	}
	select {
	case d.suspected <- from:
	default:
	}
}

// loop calls an election as soon as the leader's process has exited, rather than a heartbeat
// timeout later: its connections have ended, and it refuses new ones. A leader that is partitioned
// or hangs shows neither. An unnecessary election does no harm except the interruption.
func (d *failureDetector) loop() {
	for {
		select {
		case id := <-d.suspected:
			d.suspect(id)
		case <-d.closing:
			return
		}
	}
}

func (d *failureDetector) suspect(id string) {
	term := d.raft.CurrentTerm()
	if !d.refusesConnections(id) {
		return
	}
	// Each voter waits for those with smaller ids.
	others, _ := d.otherVoters()
	rank := 0
	for _, o := range others {
		if o < d.cfg.ID && o != id {
			rank++
		}
	}
	pause := time.Duration(rank)*suspectStagger + rand.N(suspectStagger/6)
	select {
	case <-time.After(pause):
	case <-d.closing:
		return
	}
	if _, leader := d.raft.LeaderWithID(); d.raft.CurrentTerm() != term || string(leader) != id && leader != "" {
		return // an election has begun already
	}
	servers := d.raft.GetConfiguration().Configuration().Servers
	if self := serverOf(servers, d.cfg.ID); self == nil || self.Suffrage != raft.Voter || !slices.Contains(others, id) {
		return
	}
	if d.raft.State() == raft.Leader || !d.refusesConnections(id) {
		return
	}
	d.log.Info("raftmeta: leader process exited, calling an election", "leader", id, "term", term)
	_, _ = d.trans.dispatch(&raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, nil)
}

// refusesConnections reports whether the server refuses connections, which is an immediate error. A server that
// does not answer at all is left to the heartbeat timeout.
func (d *failureDetector) refusesConnections(id string) bool {
	start := time.Now()
	_, err := d.trans.term(id)
	return err != nil && time.Since(start) < quickTimeout/4
}
