// Package blobfs is the block store, in place of the paper's GFS (§4): it keeps
// blobs, which are written once and sealed, and logs, which are appended to, on the disks of
// several nodes.
//
// We depart from GFS in having no master and no list of chunks: whoever keeps a blob
// keeps its [Handle], which says all that a reader needs, and each node knows of the
// extents that it holds who else should. Where new ones go is computed, see package place.
// As in GFS, data flows down a chain of replicas; there is no primary, since a sealed extent
// has one writer and never changes. DESIGN.md beside this file says why things are as they are.
//
// # Nouns
//
//   - A [Store] is the block store as one node sees it: its disks, package local, and those of
//     the fleet, through package api. Without a fleet it is the disks and nothing else.
//   - An extent is a part of a blob that is kept whole. Its replicas are the copies
//     of it, at most one on a node; its holders are the nodes that should have one.
//   - A spread is one extent on its way to its nodes. A branch is a chain of nodes that it feeds.
//   - A stream is the same extent as a node receives it, and sends it on to those behind.
//   - A source is where a reader gets an extent from: here, or any node that has it.
//   - The keeper of a node sees to the extents there: that they have as many replicas as they should, and
//     no more. It scans their lists, audits other nodes, by asking whether they hold what they should, and makes
//     tasks of what is not right.
//   - A node is gone when it was dead for the grace period, or has left.
//   - A sweep finds garbage: a [Sweeper] makes rounds, in which it asks all nodes what they use and the
//     [Roots] what they name, and tells each node what of its extents that leaves. A blob is
//     pinned on a node that uses it.
//   - A node is suspected for ten seconds after it did not answer, or until it answers: it gets nothing new then,
//     and is asked after the others. It is asked meanwhile whether it is there again; when it is, what failed is tried.
//
// # Goroutines
//
//	who      started by           stopped by        owns
//	stream   Begin of a peer      Seal, Abort,      an extent being received; one
//	                              StreamIdle,         thing after the other
//	                              Close
//	beside   Writer.Write         Writer.Seal,      sealing an extent while the next
//	                              Abort               is written
//	search   reads, OpenBlob      ReplyTimeout      asking one node for bytes
//	later    who gives up nodes,  ReplyTimeout      aborting streams, dropping extents
//	         Writer.Abort
//	pull     Copy                 its end           reading ahead of what is written
//	ask      who suspects a node  an answer, Close  asking it again; one for a node
//	run      OpenIn, with a fleet Close             scanning the lists of extents here
//	auditing OpenIn, with a fleet Close             asking nodes whether they hold what they should
//	work     OpenIn, with a fleet Close             the task in hand; Workers of them
//	scrubbing, balancing  OpenIn  Close             reading extents; giving them to emptier nodes
//	abandoning            OpenIn  Close             deleting what was abandoned and is garbage
//	watch    CreateLog            its log's end     looking whether replicas of a log are slow
//	link     frames for a node    the replica is    sending a log's frames to one node
//	                              given up
//	change   a log's writer       its answer        opening, cutting or dropping a replica; reading or
//	                                                  saving the list of extents
//	flush    frames of others     they are durable  a log's replica here
//	fence    OpenLog              OpenLog           fencing a log on one node
//
// What is queued for a stream is bounded by 16 MiB, twice the window of its sender; beyond that the
// sender is refused. A node has at most 256 streams.
//
// Of tasks the 16,384 most urgent wait; the others are found by the next scan. What cannot be done is tried
// again after 1 s, and then ever more seldom, up to 5 min; at once when a node comes, goes or answers again. So is a node
// that could not be audited. An extent whose list gets too short is seen to at once, wherever that list is.
//
// # Invariants
//
//	R1. A handle is returned only when each extent is durable on all nodes that it names.
//	R2. Those are as many as there should be replicas, unless no more nodes could be had.
//	R3. A reader gets the right bytes or an error; no error while one good replica is
//	    reachable, whatever hints and fleet say.
//	R4. That there is no such blob is said only when all nodes said so.
//	R5. A replica found rotten is not used by the reader that found it, and its node knows. One whose file
//	    is gone is rotten.
//	R6. Each node that has sealed an extent has kept, before that, a list of holders in which all
//	    others are that were to seal it.
//	R7. When no node has room, it is told before anything is written. What is vital is written also
//	    on nodes that are full for all else, if no others are left.
//	R8. An extent with one good replica on a node that lives gets as many as it should have, within
//	    a time that what there is to copy and the rate bound.
//	R9. A keeper drops a replica only if its node is not on the extent's newest list that it knows, and
//	    enough nodes that are on it have answered that they have that list and the same bytes. So there are at least so
//	    many afterwards, whoever else drops at the same time.
//	R10. A rotten replica is there until a good one takes its place, or until there are enough others.
//	R11. A node is said to be safe to unplug only when it holds no extent and no list of a log names it.
//	R12. No extent is taken for garbage of a blob that a root names, that is open, that is pinned, or that
//	    was written by a process that lives and has not released it; nor a replica of a log that its list names. If the
//	    roots miss one, it is served nevertheless for the time of grace, and once it was asked for nothing is removed
//	    any more until a person says so.
//	R13. What is garbage is removed by the round that comes after two rounds and the time of grace; rounds in which a
//	    root fails, or a node does not answer that is not away for long, do not count.
package blobfs
