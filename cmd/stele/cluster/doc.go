// Package cluster has the commands status, node and raft.
//
//   - A drainState is the progress of a drain: the tablets and replicas that the node still has.
//   - A recovery makes one voter's copy of the lock service the only one, offline.
//
// Package internal/health has the state of the cluster. This package starts no goroutine.
package cluster
