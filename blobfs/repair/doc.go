// Package repair maintains the replicas of the sealed extents on a node: their number, their bytes
// and their places. In the paper's GFS (§4) the master does this; here each node looks after the
// extents that it holds, and there is no leader. Section "Repair" of ../DESIGN.md has the reasons and
// trade-offs.
//
// # Nouns
//
//   - The [Repairer] of a node scans the holder lists of its extents, audits other nodes by asking
//     whether they have the replicas that they should, and queues a task for each extent that needs
//     work.
//   - A survey is the state of an extent's replicas, after asking the nodes that may have one.
//   - A node is gone when it was dead for the grace period, or was removed.
//   - [Corruption] records the local extents that were found corrupt, until they are healed.
//   - The scrub reads all local extents. The balancer moves extents to emptier nodes.
//
// # Goroutines
//
//	name          started by  stopped by  owns
//	run           Start       Deps.Work   scanning the holder lists of local extents
//	auditor.run   Start       Deps.Work   asking nodes whether they have their replicas
//	workLoop      Start       Deps.Work   the current task; Workers of them
//	scrubber.run  Start       Deps.Work   reading extents
//	balancer.run  Start       Deps.Work   moving extents to emptier nodes
//
// The task queue holds the 16,384 most urgent tasks; the next scan finds the others. A failed task
// is retried after 1 s, then with exponential backoff up to 5 min, and at once when a node joins,
// leaves or answers again. A failed audit is retried in the same way. An extent whose holder list
// becomes too short is queued at once on every node that has the list.
//
// # Invariants
//
// R8 to R11 of package blobfs.
package repair
