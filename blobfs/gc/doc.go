// Package gc is the garbage collection of blobs and log replicas, as in the paper's GFS (§4), where
// the master does it. Section "Garbage collection" of ../DESIGN.md has the reasons and trade-offs.
//
// Collection runs in rounds, driven by a [Sweeper] on one node. It asks all nodes which blobs they use
// and the [Roots] which blobs they name. Then it reports to each node which of its extents are
// garbage. A node warns of garbage in one round, quarantines it in a later one, and removes it after a
// grace period.
//
// # Nouns
//
//   - A round is one garbage collection on all nodes. A sweep is the same: the methods on the wire, the
//     metrics (stele_blob_sweep_…) and the file in the lock service have this older name.
//   - A [Sweeper] runs the rounds, on the master's node. "Marking" is collecting the IDs of needed
//     blobs, as in mark and sweep. It never means garbage.
//   - An extent is warned when a round has found it to be garbage. The warning is in the node's memory.
//     A later round confirms it, which quarantines the extent, or drops it.
//   - A [Collector] is garbage collection as one node sees it. Its [Participant] is what the node
//     serves to Sweepers.
//   - A root names blobs that are needed. A pin names a blob in use on a node.
//   - An extent in quarantine is not listed and not removed yet. A read takes it out and raises the
//     alarm, which halts all rounds until an operator resumes them.
//   - An abandoned blob is one that a user no longer needs, although others may. It leaves quarantine
//     early.
//
// # Goroutines
//
//	name             started by    stopped by   owns
//	Sweeper.Run      the caller    its context  the rounds
//	DropAbandoned    blobfs.Store  its context  deleting abandoned blobs that are garbage
//	PermitEvictions  blobfs.Store  its context  permitting evictions; recording this node's alarm
//
// # Invariants
//
// R12 and R13 of package blobfs. From these follow:
//
//	GC1. Only extents that existed when a round began are judged in it.
//	GC2. Pins are read after the round has begun on all nodes, and roots after the pins.
//	GC3. A node acts on a round only if all its extents were judged.
//	GC4. A full disk evicts nothing later than evictionPermit after its node began to read, in the lock
//	    service, that garbage collection is not halted.
package gc
