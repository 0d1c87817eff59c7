// Package lockclient is a node's client of the lock service, as Chubby's clients are (paper §4): its session, which it opens with the
// leader and opens again after it has expired, and the lock of the node's file in namespace.ServersDir, which makes this process the node
// (I4). A process on a copy of the node's data directories, or a previous run that still holds the lock, keeps it out.
//
// The client looks for the leader on this node itself, if it votes, then on the voters that gossip knows, then on all other nodes. A
// request to this node's own group does not use the network.
//
// The package starts no goroutine besides those of package session.
package lockclient
