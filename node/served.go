package node

import "github.com/steledb/stele/tablet"

// Served returns the tablets that a node serves at this instant: none unless it certainly holds its server lock. It makes no call and
// takes no lock that is held during I/O.
func Served(n *Node) []tablet.Loaded {
	s := n.tabletServer.Current()
	if s == nil || s.Serving() != nil {
		return nil
	}
	return append(s.Metadata.Served().Loaded(), s.Users.Served().Loaded()...)
}
