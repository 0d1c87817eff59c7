// Package tablet is the tablet server (paper §5): it serves reads and writes of
// row ranges of tables, from a commit log, memtables and SSTables.
//
//	          writes                                reads
//	            │                                     │
//	admit ▶ latch ▶ commitlog ▶ memtable              │
//	                   │            │ minor           │
//	                log blob        ▼                 ▼
//	                           SSTables ◀── view: memtables + SSTables,
//	                        merging, major            merged row by row
//
// The package sees the rest of the world through interfaces: Blobs (where files
// and logs are), Metadata (where a tablet's row of METADATA is), Access (what a caller
// may see and change) and the clock.
//
// # Nouns
//
//   - A Tablet is a range of rows, start < row <= end, of one table.
//   - A view is what a read sees: the memtables and the files that together hold
//     each entry once. Views never change; compactions replace them.
//   - An entry is an internal key (see ikey) and a value. Each has a sequence
//     number, and a mutation takes as many as it has operations.
//   - A commit is visible when the tablet's applied number has passed its last
//     entry. A read looks at one number, so it sees whole mutations only.
//   - The redo point of a tablet is the sequence number up to which its entries
//     are in files. Recovery replays what the log has beyond it.
//   - A run is what a piece of a dead server's log holds, sorted by table and
//     internal key: SortLog writes it, Load reads a tablet's part of it. OpenRuns are
//     those that are open, for many loads: each is opened once.
//
// # Semantics
//
// A deletion covers the entries with lower sequence numbers, whatever the
// timestamps. GC policies are judged on read; compactions only take away what no
// read can see any more, so a read gives the same answer before and after one.
// For that, a policy of versions=n must be sticky: see judge. The time by which
// ages are judged never goes back while a server runs.
//
// Server timestamps are given under the commit log's lock, in sequence order. They go
// on above the tablet's last when another server loads it.
//
// # Coming and going
//
// Load takes a tablet in: its files, and of a dead server's log what is in sorted
// runs. Those are sorted by table and row, never by tablet: a tablet may have been split
// or merged since. Unload gives it away after two minor compactions. While writes are stopped
// (a halt) writers wait; then they look for the row's tablet anew. Reads go on.
//
// Split makes two tablets of one, which share files and memtables, each within its
// bounds; Merge makes one of two. Bounds are part of a file's metadata: what a child has
// deleted and compacted away cannot come back from the file that its sibling still has.
// A split writes one row of Metadata, the lower child's, so the row of the upper one tells
// of the undivided tablet until it is next written; Meta.Narrow puts that right.
//
// A tablet that has grown large, or that for half a minute has had more to do than its
// share, is told of through Config.OnSplitWanted; who hears of it decides.
//
// Config.Serving is asked when an operation begins and before its answer is given. A
// write that finds the server's lease gone when it is durable is answered with an
// UnsureError.
//
// So is the Version of the schema by which an operation is done, after Serving. If it is not current any more, the schema is
// read again from Config.Schemas: an operation that has not begun waits for that, a read is made again, and a write that is durable
// is acknowledged if the families that it wrote are there still, else answered with an UnsureError. A table that was
// dropped is not served from then on (I15).
//
// # Compactions
//
// A minor compaction writes frozen memtables as one file per locality group. It lets
// the log go, and has room on full disks, as have runs and all files of METADATA: Blobs.CreateVital. A
// merging compaction takes neighbouring files, so files of a group stay ordered
// by sequence number; pickMerge has the policy. A compaction that takes in the
// oldest file has the whole past in hand and drops deletions with what they
// cover; one that takes all files is a major compaction. Each tablet has one
// within MajorPeriod (I10).
//
// A family that the schema puts into another locality group is written there from then on. Each file lists
// the families that it has, so reads look for a family where it was, too. While a tablet has such
// files no group has the whole past of anything; the next major compaction takes the files of
// all groups as one input, and each family goes where it is to be.
//
// # In-memory groups
//
// A file of an in-memory group is read into memory when it is first read, whole,
// and stays there, decompressed, as long as it is open. What compactions write of
// a group of whose files one was read is there before it takes the place of what was
// (paper §6, "Locality groups"). What is only written takes no memory.
//
// # Caches
//
// The block cache has blocks of files, the scan cache the entries of rows that are
// asked for again and again and whose blocks had no room; a quarter of the caches'
// memory is for these (paper §6, "Caching for read performance"). Both are of
// files, which never change: nothing in them is ever out of date. What a merging or major compaction writes is in the
// block cache when it is read, as far as what it replaces was there.
//
// # Departures from the paper
//
// One memtable holds all locality groups of a tablet; the groups part when it is
// written out. Deletion entries carry sequence numbers. Families have ids, so a
// dropped family's cells do not come back with its name. The tablet's metadata is
// one compare-and-set row, and a file is deleted when no view holds it and that
// row no longer names it.
//
// # Goroutines
//
//	commitlog writer, applier  see commitlog; the applier alone adds to memtables
//	                           and freezes them
//	minorLoop                  started by Open, ends with Close; writes memtables out
//	mergeLoop                  the same; merging and major compactions
//	their compactions          one goroutine for each, one of each loop at work; more only
//	                           while they wait for METADATA, the log or a lock: see turn
//	timerLoop                  the same; looks for what is due
//	pinLoop                    the same; reads files of in-memory groups into memory
//	deleteLoop                 the same; deletes the blobs of replaced files, and abandoned logs
//	Config.OnFailure           called once, when the commit log has failed; nobody joins it
//
// Every queue holds each tablet once. Writers that find no memory wait
// OverloadWait, then get an error.
//
// # Locks
//
// Order: Tablet.minorMu or mergeMu, metaMu, mu. Only mu is never held across I/O.
// Latches come before all of them, and a latch holder waits only for the log and, for
// OverloadWait at most, for memory. Tablet.claimed, which Unload, Split and Merge
// hold, comes first of all; of two tablets that of the lower one. deletions.working is held across the I/O of
// deletions, with none of these.
//
// # Invariants
//
//	T1. An entry is visible only after its record is durable (I1).
//	T2. Entries of one commit become visible together (I3).
//	T3. Every entry at or below the redo point is in a file that the metadata
//	    names, unless it can decide no read any more.
//	T4. A log extent is released only when all its records are below the redo
//	    points of their tablets (I1).
//	T5. What the files of a group have of a row is in order of its sequence
//	    numbers, without overlap; the first n files have the oldest of any row.
//	T6. A file's blob is deleted only when no metadata names it and no view holds
//	    it (I6). One that two tablets may name is deleted by neither.
//	T7. Memory is bounded (I13).
//	    Memtables and mutations on their way to them stay within MemtablesBytesMax, or one
//	    mutation that alone is larger. Memtables that are written out and that reads hold
//	    still count, for half of it at most.
//	    Merging and major compactions hold no memtables, and no read that waits for the
//	    memory of a large cell or row does, unless it has a row's latch.
//	    What serves reads stays within CacheBytes: open files, in-memory groups, of
//	    which what does not fit is read from disk, and the block cache.
//	    What merging and major compactions have of files stays within CompactionMemory, or the
//	    block cache gives way to what one takes more: it keeps one large value of its files at a
//	    time then. The cache gives way to minor compactions, for their largest value, and to loads, for
//	    the sorted runs that they read, RecoveryMemory together.
//	    An operation on a tablet that is no write does not wait for the commit log, but for
//	    writes of that tablet that are under way, and for those OverloadWait at most; a drop
//	    for none.
//	T8. When a halt of a tablet has begun, none of its commits is under way and
//	    none begins; what was acknowledged is in its memtables (I1, I2).
//	T9. While a tablet's change of metadata has no known outcome there is no other,
//	    so the redo point by which its log is read again is the one in use.
//	T10. Deletions are dropped only by a compaction that has all older entries of what they
//	    cover: while a family has entries in two groups, only by one of both.
//	T11. The schemas by which a tablet is compacted succeed each other in the order of their changes, and what a compaction
//	    takes in was written by the one that it goes by, or an earlier one.
package tablet
