// Package master is Bigtable's master (§5.1, §5.2): the one node of a cluster that
// sees to it that the others have what they need. Today it holds the master lock and
// decides who votes in the lock service; tablets come with METADATA.
//
// In the paper the master takes a lock in Chubby so that there is one, and Chubby's
// cell is somebody else's business. Here the lock service is part of the nodes, so
// the master also keeps its voters: Plan.
package master
