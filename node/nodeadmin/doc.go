// Package nodeadmin serves the methods by which operators manage the nodes of a cluster: list_nodes, drain_node, remove_node and
// raft_status. A node that does not lead the lock service asks the leader for the status of the Raft group, which only the leader knows. The
// package starts no goroutines. The paper leaves the management of machines to the cluster's own system (§4).
//
// # Invariants
//
//	NA1. A node is removed only if a majority of live voters of the lock service remains without it.
package nodeadmin
