// Package faults holds the tests that run a cluster as operators do, and break it:
// real processes of the program, each on a host of its own (internal/netlab), that are
// killed, paused and cut off from each other while clients, also processes, use the
// lock service. Chubby's paper (§4.1, §4.2) is where most outages were of this kind.
// And the same with disks that fill up, fail, rot and get lost, while clients write
// and read rows of tables: what the block store under them is for.
//
// # Nouns
//
//   - A cluster is nodes on hosts, their data folders and their logs.
//   - A client is a process with sessions. It writes what it asked, what it was
//     answered and what it believed to a history, with times of the machine's monotonic
//     clock, which all processes share.
//   - A register is a file that clients read, through caches and not, and change by
//     compare-and-set. An era is the registers of a moment: outcomes that are not known
//     would otherwise pile up on one file until no order can be found.
//   - A hold is one time that a session had a lock. It lasts from when Acquire returned
//     to the last moment at which the session believed, by Held, to have it.
//   - The judge is a third party, with no part in the lock service, that is shown
//     sequencers.
//   - A fault is something done to the cluster for a while.
//   - A writer writes rows, each once, to a table of one node, and remembers what came of
//     it: the row's fate. What stands in a row follows from its key.
//   - A disk is a small file system in memory, with a data folder of one node. Its extents
//     are so small that commit logs go on to the next every few seconds. It loses power if root runs the
//     test, who may use loop devices: then it has what was synced. For others a power cut is a kill.
//   - A user is a process that reads and changes rows of tables that all users share. Its history is
//     like a client's. Rows of an era are for the model of a row, which reads, scans, writes,
//     deletions, increments and compare-and-sets must fit; counters and accounts live as long as the
//     run; the list is what HBase's ITBLL writes: rows that name rows, so that one that is lost is missed.
//     A mortal is a user that does not write the list: it is killed in the middle of what it does, and what it had
//     under way is of unknown outcome.
//   - A drain is what operators do before they stop a node: "stele node drain", and the undrain later.
//   - A life is one incarnation of a table's family: from its creation to the drop of the table or the family. An owner
//     changes the schemas of tables of its own, one change after the other.
//   - A plant is a mistake in the program (internal/planted), and the faults that bring it to light.
//   - Damage is what makes a replica useless for good: a flipped bit, a lost disk. It
//     is only done to what has another replica that is good, as this test itself
//     finds by reading the files: two copies out of three may be lost, not the third.
//
// # Invariants
//
// Whatever the faults:
//
//	F1. Operations on a register are linearizable (Porcupine), reads from a session's
//	    cache, operations of unknown outcome and a read of each in the end included.
//	    An error that does not say that the outcome is unknown means that nothing was
//	    changed.
//	F2. Holds of a lock by different sessions do not overlap, unless all are shared.
//	F3. Lock generations grow with each hold of an exclusive lock: no two sessions show
//	    the judge the same one, and who is refused for an old one does not believe to
//	    hold the lock.
//	F4. A sequencer is valid while its holder believes in the lock, and not any more
//	    once it was released.
//	F5. A session's ephemeral file is there while the session believes in its lease, and
//	    gone once the session is closed.
//	F6. After each fault the service answers again within recoverTime; nodes that were
//	    not killed do not end.
//	F7. In the end there is one leader, all voters are back and hold the same files, the
//	    clients' locks and ephemeral files are gone, and all nodes stop in order.
//
// And of the block store:
//
//	S1. Each row that was acknowledged, and whose deletion was not asked for, is there,
//	    while faults last and after all nodes have lost power.
//	S2. No row is there that was refused, deleted or never written; a counter is between
//	    the increments that were acknowledged and those that were asked for.
//	S3. What is read is what was written, byte for byte.
//	S4. One bad replica makes no read fail: nobody is told of damage.
//	S5. After each fault all tables are written and read within recoverTime, without
//	    anybody doing anything but to start processes that were killed or whose disks
//	    fail syncs. Full disks are told as such, and writing goes on when there is room.
//	S6. Each extent that is needed has a good replica in the end.
//
// And of the whole, machines, networks, disks, clocks and users being faulted while tablets move, and power being cut:
//
//	W1. Operations on a row are linearizable (Porcupine), those of unknown outcome and what scans find, or
//	    leave out, included. An error that does not say that the outcome is unknown means that nothing
//	    was changed.
//	W2. An increment that was acknowledged counts once, one of unknown outcome once or not at all.
//	W3. What one mutation changes in a row is seen together: two families of a row hold the same value,
//	    with the same timestamp, and the sums of an account come to the same total. No transfer by
//	    compare-and-set is made twice from the same state.
//	W4. Timestamps that servers give go up in each row, whatever the clocks say.
//	W5. The list is whole in the end: each of its rows is named once. A scan has every row of it that was
//	    acknowledged before, once, in order.
//	W6. After each fault all tables are read and written within recoverTime; nodes that were not killed do
//	    not end.
//	W7. In the end, after all nodes have lost power once more: the tablets of each table join, in METADATA and as
//	    servers have them, and wait for no log; blob fsck, and check of each node's folders, find nothing
//	    wrong; each extent of a blob has three good replicas.
//	W8. While a node is drained, stopped, started and undrained and nothing else is wrong, nor was in a lease's
//	    time before, the drain ends within drainTime, the process within drainStop, and no operation fails, or
//	    waits for longer than drainPatience.
//
// And of tables and families that are dropped, created again and altered while tablets are moved, split and merged and nodes
// are killed, paused and cut off (TestSchemas):
//
//	D1. A row that was acknowledged is found by each read that begins later, until the drop of its table or family begins.
//	D2. A write is acknowledged only if the table and the families that it is for are there at some moment between its
//	    begin and its end: none that begins after a drop has returned, unless there is a new one of the name.
//	D3. No read finds what was refused, or what was written into a table or family that was dropped before the read began.
//	D4. After each fault tables are read and written within recoverTime; nodes that were not killed do not end.
//
// All clusters have certificates: nodes, clients and users come with one, and all that they send is encrypted.
//
// # How long
//
// "go test" makes 14 faults of the whole, with -short 3, and 5 of TestSchemas, with -short 1. STELE_SOAK=2 makes two runs of more and longer ones,
// STELE_FAULTS=500 one run of that many. STELE_FAULT_KINDS names those to choose from, keys of wholeKinds
// separated by commas. "make soak" is scripts/soak.sh.
package faults
