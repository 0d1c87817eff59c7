package node

import (
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

// LockServiceState returns what raftmeta.StateSum returns; zeros if the node does not vote.
func LockServiceState(n *Node) (applied, sum uint64) {
	if group := n.raftGroup(); group != nil {
		return raftmeta.StateSum(group)
	}
	return 0, 0
}
