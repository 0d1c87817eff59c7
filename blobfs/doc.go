// Package blobfs is the replicated block store that takes the place of the paper's GFS (§4). It keeps
// blobs, which are written once and sealed, and logs, which are appended to, on the disks of several
// nodes.
//
// Unlike GFS it has no master and no chunk list. The owner of a blob keeps its [Handle], which
// holds all that a reader needs. Each node keeps, for every extent that it stores, the list of
// nodes that should have a replica. Package place computes where new extents go. As in GFS, data
// flows down a chain of replicas. There is no primary: a sealed extent had one writer and never
// changes. DESIGN.md beside this file has the reasons and trade-offs.
//
// # Nouns
//
//   - A [Store] is the block store as one node sees it: the local disks (package local) and the disks
//     of the other members, reached through package api. Without a membership it uses the local disks
//     only.
//   - An extent is a part of a blob that is stored as one file. Its replicas are its copies, at most
//     one per node. Its holders are the nodes that should have a replica.
//   - A replicated write is the writer's side of one extent being written. A branch is a replication
//     chain fed by the writer; normally there is one.
//   - A stream is the receiving side of the same extent on one node, which forwards the bytes to the
//     next node of the chain.
//   - A source is what a reader reads one extent from: the local disk or any node that has a replica.
//   - The repairer of a node (package repair) maintains the replication factor of the extents on that
//     node.
//   - Garbage collection (package gc) finds the blobs that no root names and no node uses. A blob in
//     use on a node is pinned there.
//   - A node that did not answer is suspected (package members). It gets no new replicas and is read
//     from last. When it answers, the tasks that failed are retried.
//
// # Goroutines
//
//	name         started by           stopped by        owns
//	stream       Begin of a peer      Seal, Abort,      one extent being received; runs its
//	                                  StreamIdle,         operations one at a time
//	                                  Close
//	beside       Writer.Write         Writer.Seal,      sealing an extent while the next
//	                                  Abort               is written
//	search       reads, OpenBlob      ReplyTimeout      reading from one node
//	pull         Copy                 its end           reading ahead of the copy's writes
//
// Packages members, gc, replog and repair have tables of their own.
//
// The queue of a stream holds at most 16 MiB, twice the sender's window; more is rejected with
// api.ErrBusy. A node has at most 256 streams.
//
// # Invariants
//
//	R1. A handle is returned only when each extent is durable on all nodes that it names.
//	R2. Those are as many nodes as the replication factor, unless fewer nodes were available.
//	R3. A reader gets the right bytes or an error. It gets no error while one good replica is
//	    reachable, even if the hints or the membership are wrong.
//	R4. ErrNoBlob is returned only when every node answered that it has no replica.
//	R5. A replica found corrupt is not used again by the reader that found it, and its node records
//	    the corruption. A replica whose file is missing counts as corrupt.
//	R6. Before a node seals an extent it stores a holder list that names all other nodes that were
//	    asked to seal it.
//	R7. When all nodes are full, the error is returned before anything is written. A high-priority
//	    extent is also written to nodes that are full for other extents, if no others are available.
//	R8. An extent with one good replica on a live node regains its replication factor within a time
//	    bounded by the bytes to copy and the copy rate.
//	R9. A repairer drops a replica only if its node is not on the newest holder list that it knows, and
//	    enough nodes on that list have answered that they have that list and the same bytes. So at
//	    least that many replicas remain, however many nodes drop concurrently.
//	R10. A corrupt replica is kept until a good one replaces it, or until there are enough others. A
//	    corrupt log replica gives its good frames to the one that replaces it.
//	R11. A node is reported safe to remove only when it holds no extent and no log's list names it.
//	R12. No extent is garbage if its blob is named by a root, open, pinned, or was written by a live
//	    process that has not released it; nor is a log replica that its log's list names. If the roots
//	    miss a blob, it stays readable for the grace period. Once it is read, removal stops until an
//	    operator resumes it: on that node at once, on full disks of others within gc.EvictionDelay.
//	R13. Garbage is removed by the round that follows two rounds and the grace period. Rounds in which
//	    a root fails, or in which a node that was not down for long does not answer, do not count. On a
//	    full disk garbage that two rounds have found is removed after local.Config.QuarantineMin, but
//	    only while its node can read that garbage collection is not halted.
//	R14. Store.Delete, replog.Logs.Remove, the release of a log, and the methods blob.drop and log.drop
//	    between nodes check no reference. Their callers have made sure durably that no root or list
//	    names the blob or extent, and that none ever will.
package blobfs
