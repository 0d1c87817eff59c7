// Package cluster has the commands status, node and raft.
//
//   - A clusterStatus is the state of the cluster as one node can see it. What cannot be read within
//     clusterTimeout is nil and listed as unknown, never 0.
//   - A drainState is the progress of a drain: the tablets and replicas that the node still has.
//   - A recovery makes one voter's copy of the lock service the only one, offline.
//
// Goroutines: clusterOf starts one for each request, and joins them.
package cluster
