package node

import (
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/tablet"
)

// Served returns the tablets that a node serves at this instant: none unless it certainly holds its server lock. It makes no call and
// takes no lock that is held during I/O.
func Served(n *Node) []tablet.Loaded {
	s := n.tabletServer.Current()
	if s == nil || s.Serving() != nil {
		return nil
	}
	return append(s.Metadata.Served().Loaded(), s.Users.Served().Loaded()...)
}

// WriteCharges returns the bytes that the node's tablet servers have charged to writes in progress.
func WriteCharges(n *Node) int64 {
	s := n.tabletServer.Current()
	if s == nil {
		return 0
	}
	return s.Metadata.WriteCharges() + s.Users.WriteCharges()
}

// Discarding returns the number of tablets of dropped tables that the node's tablet server has not released yet.
func Discarding(n *Node) int64 {
	s := n.tabletServer.Current()
	if s == nil {
		return 0
	}
	return s.Users.Discarding()
}

// LockServiceState returns what raftmeta.StateSum returns; zeros if the node does not vote.
func LockServiceState(n *Node) (applied, sum uint64) {
	if group := n.raftGroup(); group != nil {
		return raftmeta.StateSum(group)
	}
	return 0, 0
}

// Calls returns how many calls a node has answered, by method, and how many connections to it are open.
func Calls(n *Node) (calls map[string]uint64, conns int64) {
	stats := n.rpc.Stats()
	calls = map[string]uint64{}
	for _, m := range stats.Methods {
		if m.Requests > 0 {
			calls[m.Method] = m.Requests
		}
	}
	return calls, stats.Conns
}

// Alive returns how many nodes a node lists as alive by gossip, itself included.
func Alive(n *Node) (alive int) {
	for _, m := range n.members.Gossiped() {
		if m.State == gossip.Alive {
			alive++
		}
	}
	return alive
}

// IsMaster reports whether a node is the master.
func IsMaster(n *Node) bool { return n.candidate.IsMaster() }

// Votes reports whether a node is a voter of the lock service.
func Votes(n *Node) bool {
	votes, _ := n.voter.Votes()
	return votes
}
