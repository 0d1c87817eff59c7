// Package replog is logs that are replicated on several nodes: the commit logs of tablet servers. The
// paper's commit logs (§5.3, §6) are files of GFS; GFS (§4) leaves their replication to a primary,
// here it is the writer that sends to all replicas. Package logproto has the protocol as state
// machines without I/O. This package does their I/O. Section "Logs" of ../DESIGN.md has the reasons,
// the proof and what was explored.
//
// # Nouns
//
//   - [Logs] are the logs as one node sees them. [Replicas] are what the node stores for others.
//   - A log is a sequence of extents. Its list, a file in the lock service, names them and the nodes
//     that have replicas of each.
//   - A [Writer] appends to a log. It sends frames down a link to each replica of the current extent,
//     and keeps another extent as a standby.
//   - A recovery fences a log's writer and records where the log ends. A [Reader] reads a closed log.
//   - A [Piece] is a range of a closed log that can be read on its own.
//
// # Goroutines
//
//	name    started by          stopped by        owns
//	watch   Logs.Create         its log's end     detecting slow replicas of a log
//	link    frames for a node   the replica is    sending a log's frames to one node
//	                            dropped
//	change  a log's writer      its answer        opening, truncating or dropping a replica; reading
//	                                              or saving the list
//	check   watch               its answer        asking a node for its replica of an open extent
//	flush   frames of a writer  they are durable  the local replica of a log
//	fence   Logs.Open           Logs.Open         fencing a log on one node
//
// # Invariants
//
// L1 to L5 of package logproto, and R12 of package blobfs for the replicas that a list names.
package replog
