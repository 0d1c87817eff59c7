// Package members knows the nodes of the cluster: their last known addresses, their state by gossip (package gossip), and the registry, a
// file for each node in the lock service, which also has operators' decisions. Gossip is a hint: a node belongs to the cluster if and
// only if it is in the registry. The paper's master finds tablet servers by their Chubby locks alone (§5.2).
//
// Package formation makes a node part of a cluster, before Start; package removal removes it. Blobs passes the members to the block store.
//
// Goroutines, which end when Config.Ctx ends:
//
//	goroutine      started by     does
//	followMembers  Start          records addresses of nodes, for the next start too
//	publishLoad    Start          publishes the free disk space
//	joinGossip     Start          contacts members by gossip; ends when one answers
//	Blobs.Follow   its caller     follows the registry and gossip for the block store
package members
