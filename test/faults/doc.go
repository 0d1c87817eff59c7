// Package faults tests clusters under faults. It runs real processes of the program, each on its
// own host (internal/netlab), and kills, pauses and disconnects them while clients, which are
// processes too, use the lock service. In Chubby's paper (§4.1, §4.2) most outages were of this
// kind. Other tests fill disks, make them fail, corrupt them and remove them, while clients write
// and read rows of tables.
//
// # Nouns
//
//   - A cluster is a set of nodes on hosts, with their data directories and logs.
//   - A client is a process with sessions. It records its requests, their answers and its beliefs in a
//     history, with times of the machine's monotonic clock, which all processes share.
//   - A register is a file that clients read, with and without caches, and change by compare-and-set.
//     An era is the set of registers of a period. Without eras, operations of unknown outcome would
//     accumulate on one file until no order could be found.
//   - A hold is a period in which a session had a lock. It lasts from the return of Acquire to the last
//     moment at which the session believed, by Held, that it had the lock.
//   - The judge is a process outside the lock service that receives sequencers and checks them.
//   - A fault is something done to the cluster for a period.
//   - A writer writes rows, each once, to a table of one node, and records the outcome: the row's fate.
//     The contents of a row follow from its key.
//   - A disk is a small file system in memory with a data directory of one node. Its extents are so
//     small that commit logs begin a new one every few seconds. If root runs the test, a disk uses a
//     loop device and can lose power: it then holds what was synced. Otherwise a power cut is a kill.
//   - A user is a process that reads and changes rows of tables that all users share. Its history is
//     like a client's. Rows of an era are for the model of a row, which must explain all reads, scans,
//     writes, deletions, increments and compare-and-sets. Counters and accounts last for the whole run.
//     The list is that of HBase's ITBLL: rows that name rows, so that a lost row is noticed. A mortal is
//     a user that does not write the list. It is killed at work, and its pending operations have an
//     unknown outcome.
//   - A drain is what operators do before they stop a node: "stele node drain", and later the undrain.
//   - A life is one incarnation of a table's family: from its creation to the drop of the table or the
//     family. An owner changes the schemas of its own tables, one change at a time.
//   - A plant is a bug planted in the program (internal/planted), with the faults that expose it.
//   - Damage makes a replica permanently useless: a flipped bit, a lost disk. It is only done to data
//     with another good replica, which the test determines by reading the files itself. Two copies of
//     three may be lost, not the third.
//
// # Invariants
//
// Whatever the faults:
//
//	FL1. Operations on a register are linearizable (Porcupine). This includes reads from a session's
//	    cache, operations of unknown outcome and a final read of each register. An error that does not
//	    mean that the outcome is unknown means that nothing was changed.
//	FL2. Holds of a lock by different sessions do not overlap, unless all are shared.
//	FL3. Lock generations grow with each hold of an exclusive lock. No two sessions show the judge the
//	    same one, and a client rejected for an old one does not believe that it holds the lock.
//	FL4. A sequencer is valid while its holder believes that it has the lock, and invalid once the lock
//	    was released.
//	FL5. A session's ephemeral file exists while the session believes in its lease, and is gone once the
//	    session is closed.
//	FL6. After each fault the service answers again within recoverTime. Nodes that were not killed do not
//	    exit.
//	FL7. In the end there is one leader, all voters are back and hold the same files, the clients' locks
//	    and ephemeral files are gone, and all nodes stop cleanly.
//
// And of the block store:
//
//	FB1. Each acknowledged row whose deletion was not requested exists, during faults and after all nodes
//	    have lost power.
//	FB2. No row exists that was rejected, deleted or never written. A counter is between the acknowledged
//	    and the requested increments.
//	FB3. Reads return what was written, byte for byte.
//	FB4. One bad replica makes no read fail: no client gets an error for damage.
//	FB5. After each fault all tables are written and read within recoverTime. This requires no action but
//	    the restart of processes that were killed or whose disks fail syncs. Full disks are reported as
//	    such, and writes resume when there is space.
//	FB6. Each extent in use has a good replica in the end.
//
// And of the whole system, with faults of machines, networks, disks, clocks and users, and power
// cuts, while tablets move:
//
//	FW1. Operations on a row are linearizable (Porcupine). This includes those of unknown outcome, and
//	    rows that scans return or omit. An error that does not mean that the outcome is unknown means
//	    that nothing was changed.
//	FW2. An acknowledged increment counts once, one of unknown outcome at most once.
//	FW3. The changes of one mutation to a row are seen together: two families of a row hold the same
//	    value with the same timestamp, and the two amounts of an account have a constant sum. No transfer
//	    by compare-and-set is made twice from the same state.
//	FW4. Server timestamps increase in each row, whatever the clocks show.
//	FW5. The list is complete in the end: each of its rows is named once. A scan returns every row of it
//	    that was acknowledged before, once, in order.
//	FW6. After each fault all tables are read and written within recoverTime. Nodes that were not killed
//	    do not exit.
//	FW7. In the end, after another power cut of all nodes: the tablets of each table are contiguous, in
//	    METADATA and on the servers, and wait for no log; blob fsck, and check of each node's
//	    directories, find no error; each extent of a blob has three good replicas.
//	FW8. While a node is drained, stopped, started and undrained, with no other fault now or within a
//	    lease's time before, the drain ends within drainTime, the process exits within drainStop, and no
//	    operation fails or waits for longer than drainPatience.
//
// And of tables and families that are dropped, created again and altered, while tablets are moved,
// split and merged and nodes are killed, paused and disconnected (TestSchemas):
//
//	FS1. An acknowledged row is found by each later read, until the drop of its table or family begins.
//	FS2. A write is acknowledged only if its table and families exist at some moment between its begin
//	    and its end. None that begins after a drop has returned is, unless there is a new one with the
//	    name.
//	FS3. No read finds a rejected write, or one into a table or family that was dropped before the read
//	    began.
//	FS4. After each fault tables are read and written within recoverTime. Nodes that were not killed do
//	    not exit.
//
// All clusters have certificates: all nodes, clients and users present one, and all traffic is
// encrypted.
//
// # How long
//
// "go test" makes 14 faults of the whole system, with -short 3, and 5 of TestSchemas, with -short
// 1. STELE_SOAK=2 makes two runs with more and longer ones, STELE_FAULTS=500 one run of that many.
// STELE_FAULT_KINDS selects among the keys of wholeKinds, separated by commas. "make soak" is
// scripts/soak.sh.
package faults
