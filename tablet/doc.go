// Package tablet is the tablet server (paper §5). It serves reads and writes of row ranges of
// tables from a commit log, memtables and SSTables.
//
//	          writes                                reads
//	            │                                     │
//	admit ▶ latch ▶ commitlog ▶ memtable              │
//	                   │            │ minor           │
//	                log blob        ▼                 ▼
//	                           SSTables ◀── view: memtables + SSTables,
//	                        merging, major            merged row by row
//
// The package depends on the rest of the system through interfaces: storage.Blobs (SSTables
// and commit logs), Metadata (METADATA rows), Schemas (table schemas), Access (what a caller may see
// and change) and a clock.
//
// # Nouns
//
//   - A Tablet is a range of rows, start < row <= end, of one table.
//   - A view is the set of memtables and files that a read uses. Together they hold each entry
//     exactly once. Views are immutable; compactions replace them.
//   - An entry is an internal key (see ikey) and a value. Each entry has a sequence number. A
//     mutation uses one sequence number for each of its operations.
//   - A token identifies a mutation, which is made once however often it is sent: table.Token.
//   - An operand is the entry of an add or a merge. Reads fold the operands of a column and a timestamp
//     to a cell (table.Aggregate), and compactions to one operand.
//   - A commit is visible when the tablet's applied number has passed its last entry. A read loads
//     that number once, so it sees whole mutations only.
//   - The redo point of a tablet is the last sequence number up to which all its entries are in
//     files (Meta.Redo). Recovery replays the log above it.
//   - The commit log is needed from serverLog.firstNeeded: every entry with a lower sequence
//     number is in files.
//   - The log is too long if a recovery would read more than Config.LogBytesMax of it, if it occupies
//     more than Config.LogSpaceMax of a disk, or if its list of extents may become full
//     (storage.LogWriter.Unused). The tablets with its oldest entries are then written out.
//   - A run is a piece of a dead server's log, sorted by table and internal key: see sortedrun.
//     Load reads a tablet's part of it.
//   - A write fence stops writes to a tablet while it is unloaded, split or merged. The claim is the
//     exclusive right to do one of the three, to clear rows, or to commit a part. It is held longer: writes go on before the fence is up.
//   - A weak log is one of which a part lacks its usual redundancy (storage.LogWriter.Weak).
//   - A lingering memtable is written out, but a read still holds its memory.
//   - A tablet's stamped time is the last server timestamp that it has assigned.
//   - A range tombstone deletes all rows of a range at once: see package tombstone and Server.Clear.
//   - A slot is the right to work for the compactions of a loop, one at a time: see sched.Slot.
//   - A part is a set of rows of a bulk import to one tablet, which are written to SSTables instead of the log: see BulkPart. Its files are bulk files:
//     their keys have no sequence number, and all of their entries have the one in FileMeta.
//   - A change stream is the record of a table's mutations, for readers that follow them: see package changes and For.ReadChanges.
//   - A backlog is how far compactions are behind, by the number of files of a group.
//   - A high-priority tablet belongs to METADATA: its writes do not wait for memory. A
//     high-priority file may use the reserve of a full disk.
//
// # Parts
//
// A Server is composed of parts, each with its own fields and locks:
//
//   - TabletMap: the served tablets, by table and row.
//   - admission: checks mutations and charges their memory, which package budget bounds.
//   - serverLog: the commit log, and the release of the part below firstNeeded.
//   - minorLoop and mergeLoop: the queues of compactions, and the choice of memtables to write out.
//   - sstables and pins: opening, creating and deleting files, and in-memory groups.
//   - heat.Retired, and a heat.Tablet for each tablet: which rows are read and written.
//   - schemaRenewer: keeps schemas current. splitter: finds tablets that should be split.
//   - metaChanges: changes of METADATA whose outcome must be known.
//
// So is a Tablet:
//
//   - viewSet: the current view and the applied number, which reads use.
//   - memWriter: adds commits to the active memtable; for the applier.
//   - writeFence: latches and the write fence.
//   - metadataRow: the tablet's row of METADATA.
//   - minorCompactor and mergeCompactor: its compactions.
//
// Operations that change several parts are types of their own: recovery, tabletSplit, tabletMerge, clearing, BulkPart.
//
// # Semantics
//
// A deletion covers the entries with lower sequence numbers, whatever their timestamps. Reads
// evaluate GC policies; compactions remove only what no read can return any more. A read therefore
// returns the same result before and after a compaction. This requires a policy of versions=n to be
// sticky: see gcpolicy. The time against which ages are measured never goes back while a server runs.
//
// A range tombstone is in the tablet's metadata and in its views, not among the entries. Reads and compactions take
// it for a deletion of each row of its range. Its sequence number is one that no entry has: Clear reserves it in the commit log while writes are fenced, so it divides
// memtables and files into those below it and those above it. It is durable in METADATA only, and the next server continues above it. Clear removes the files below it that have no other rows; a major compaction removes the rest, and the tombstone.
//
// A reversed scan steps back by row, not by entry: within a row, deletions come before what they cover, so a
// row is always read forward. Each source is at its last entry below the previous row; those that have
// entries of the largest row among these seek to its start, are merged as in a forward scan, and step back.
//
// Server timestamps are assigned under the commit log's lock, in sequence order. A server that
// loads a tablet continues above the tablet's last timestamp.
//
// # Load and unload
//
// A server starts without tablets, and after a restart it does not read its earlier logs itself. They
// are sorted like those of a dead server. Load opens a tablet's files and recovers its part of the sorted runs of dead servers' logs. Runs
// are sorted by table and row, not by tablet, because the tablet may have been split or merged
// since. Unload stops serving a tablet after two minor compactions. Writers that meet the write
// fence wait until it is lifted and then look up the row's tablet again. Reads are not fenced.
//
// Split makes two tablets of one. They share files and memtables, each within its bounds. Merge
// makes one tablet of two. The bounds are part of a file's metadata, so data that one child has
// deleted and compacted away cannot reappear from a file that its sibling still uses. A split
// writes one row of Metadata, the lower child's. Until the upper child's row is next written it
// describes the undivided tablet; Meta.Narrow corrects for that.
//
// Config.OnSplitCandidate receives tablets that have grown too large, or that for half a minute have
// had more than their share of the load. The callback decides whether to split.
//
// The server calls Config.Serving when an operation begins and before it returns its result. A
// write that is durable when the server finds its lease gone fails with an UnknownOutcomeError.
//
// After Serving, the server checks the Version of the operation's schema: when the operation begins,
// before a read is answered, and before a mutation gets its place in the log, while its latch is
// held. If the Version is no longer current, the operation starts over, and the server reads the
// schema again from Config.Schemas. Before the new schema takes effect in a tablet, the server waits
// for the tablet's pending writes (T12). They took effect before the change, whatever it dropped, and
// are acknowledged. A schema change itself waits for no write. While the commit log makes no
// progress, operations that need the new schema fail with api.ErrUnavailable after renewTimeout. A
// dropped table is no longer served (I15), and nothing waits for its writes.
//
// # Change streams
//
// The body of a mutation of a table with a change stream has a mark (logbody.AppendStreamed). The applier adds the whole record to the change
// buffer of the memtable too, and the minor compaction that writes the memtable out writes the buffer to a change file. The same
// change of METADATA names both and moves the redo point. Sorted runs have marked records under keys of their own, from which Load
// fills buffers. A split shares change files within bounds, and a merge keeps those of both. A snapshot has none.
//
// ReadChanges reads files and buffers of one view up to the visible sequence number. It holds no change file: one that is deleted
// meanwhile was rewritten or dropped, and the read begins again.
//
// # Compactions
//
// A minor compaction writes frozen memtables as one file per locality group and releases their part
// of the commit log. Its files, sorted runs, and all files of METADATA are high priority
// (Blobs.CreateHighPriority): they may use the reserve of a full disk. A merging compaction takes
// neighbouring files, so the files of a group stay ordered by sequence number; pickMerge has the
// policy. A compaction that includes the oldest file has the complete history and drops deletions
// with what they cover. One that includes all files is a major compaction. Each tablet has one
// within MajorPeriod (I10).
//
// When the schema moves a family to another locality group, new entries go to that group. Each file
// lists the families that it holds, so reads also find the family in its former group. While a
// tablet has such files, no group has the complete history of any family. The next major compaction
// reads the files of all groups as one input and writes each family to its group.
//
// # In-memory groups
//
// The first read of a file of an in-memory group loads the whole file into memory, decompressed. It
// stays there until the file is closed. If a file of such a group was loaded, compactions load the
// file that replaces it before they install it (paper §6, "Locality groups"). A group that is only
// written uses no memory.
//
// # Caches
//
// The block cache holds blocks of files. The scan cache holds the entries of rows that are read
// repeatedly and whose blocks did not fit; it has a quarter of the caches' memory (paper §6,
// "Caching for read performance"). Both hold data of immutable files, so neither can be stale. The
// output of a merging or major compaction is cached to the extent that its inputs were.
//
// # Departures from the paper
//
// One memtable holds all locality groups of a tablet; a minor compaction separates them. Deletion
// entries carry sequence numbers. Families have ids, so the cells of a dropped family do not
// reappear when its name is used again. The tablet's metadata is one row, replaced by
// compare-and-set. A file is deleted when no view holds it and that row no longer names it.
//
// # Goroutines
//
//	commitlog writer, applier  see commitlog; once a tablet is served, only the applier adds to its
//	                           memtables and freezes them
//	minorLoop.run              started by Start, stopped by Close; chooses the tablet to write out,
//	                           and when to freeze a memtable
//	mergeLoop.run              the same; chooses the tablet to merge files of
//	compactions of a loop      one goroutine each, one at work per loop; more exist only while
//	                           they wait for METADATA, the log or a lock: see sched.Slot
//	Server.timerLoop           the same; checks periodically for work that is due
//	pins.loop                  the same; loads files of in-memory groups into memory
//	deletion.Queue.Loop        the same; deletes the blobs of replaced files, and abandoned logs
//	retry timers of the loops  not joined; queue a tablet again after a failed or delayed compaction
//	Config.OnFailure           called once when the commit log has failed; not joined
//
// While a tablet is not served yet, the goroutine that recovers it adds to its memtables and freezes
// them: the caller of Load.
//
// Every queue holds each tablet at most once. Writers that get no memory within OverloadWait fail
// with an error.
//
// # Locks
//
// Order, of a tablet: minorCompactor.mu, mergeCompactor.mu, metadataRow.mu, then viewSet.mu,
// writeFence.mu or mergeCompactor.state, one at a time. Only the first three may be held across I/O.
// Of a server, TabletMap.mu comes after those three; with it, no other lock of this list is taken.
// metadataRow.mu may be held while Between waits for the applier: save does so if the tablet was
// assigned to another server. The applier therefore takes none of the first three. The commit of a part holds the latch of one row while its METADATA change is
// saved, so that a new schema waits for it (T12).
// Latches come before all of them. A latch holder waits only for the log and, at most for
// OverloadWait, for memory. writeFence.claimed, which Unload, Split and Merge hold, comes first of all;
// of two tablets, that of the lower one comes first. A deletion.Queue's lock is held across the
// I/O of deletions, with none of the others.
//
// # Invariants
//
//	T1. An entry is visible only after its record is durable (I1).
//	T2. The entries of one commit become visible together (I3).
//	T3. Every entry at or below the redo point is in a file that the metadata names, unless it
//	    can no longer affect any read.
//	T4. A log extent is released only when all its records are below the redo points of their
//	    tablets (I1).
//	T5. The files of a group hold the entries of each row in order of their sequence numbers,
//	    without overlap. The first n files hold the oldest entries of every row.
//	T6. A file's blob is deleted only when no metadata of an existing table names it and no view holds
//	    it (I6). The files of a dropped table go before its rows of METADATA. A blob that two tablets
//	    may name is deleted by neither, but only once garbage collection has found all its replicas
//	    unused.
//	T7. Memory is bounded (I13).
//	    Memtables and mutations not yet in a memtable stay within MemtablesBytesMax, or are one
//	    larger mutation. Memtables that are written out and still held by reads count too, at most
//	    for half of that bound.
//	    Merging and major compactions hold no memtables. Neither does a read that waits for the
//	    memory of a large cell or row, unless it holds a row's latch.
//	    What serves reads stays within CacheBytes: open files, in-memory groups and the block
//	    cache. Files of in-memory groups that do not fit are read from disk.
//	    Merging and major compactions hold at most CompactionMemory of their files. A compaction
//	    that needs more holds one large value of its files at a time, and the block cache shrinks
//	    by the excess. The cache also shrinks for minor compactions, by their largest value, and
//	    for the sorted runs that loads read, RecoveryMemory together.
//	    An operation on a tablet other than a write does not wait for the commit log. It waits only
//	    for that tablet's pending writes, at most for OverloadWait. A drop waits for none.
//	T8. Once a tablet's write fence is up, none of its commits is pending and none begins. What
//	    was acknowledged is in its memtables (I1, I2).
//	T9. While the outcome of a tablet's metadata change is unknown, no other change begins. The
//	    redo point used to read its log is therefore the one in effect.
//	T10. A deletion is dropped only by a compaction that has all older entries that it covers.
//	    While a family has entries in two groups, only a compaction of both may drop it.
//	T11. The schemas by which a tablet is compacted follow each other in the order of their
//	    changes. The inputs of a compaction were written by its schema or an earlier one.
//	T12. A tablet gets another schema only when no commit of an earlier one is pending. No commit
//	    gets its place in the log by a schema that was not current while its latch was held. A read
//	    loads the schema before the view. So a row operation is wholly before a schema change or
//	    wholly after it, and what begins after the change sees all that was before it (I2, I3, I15).
//	T13. A range tombstone hides every entry of its rows that was acknowledged before Clear was called, and none that
//	    was begun after Clear returned, on this server and all later ones (I1). It is dropped only by a
//	    major compaction that began when all the entries that it hides were in files, and has rewritten
//	    these. No commit gets its place in the log while the tombstone is being saved (I2).
//	T14. The cell of an aggregate family is the fold of all acknowledged operands of its column and timestamp after
//	    the last deletion that covers them, whatever compactions have run. Folding is associative and
//	    commutative, and files of a group divide a row's operands by sequence number (T5).
//	T15. An operand is folded once. Every entry is in one memtable or file of a view, and recovery adds none at
//	    or below the redo point, and one that several sorted runs have once.
//	T16. A column has either cells or operands. Writes of the other kind are rejected, and such an entry is corrupt.
//	T17. Garbage collection counts timestamps, not operands.
//	T18. A mutation with an idempotency token is made only if its row has no cell of the token within tokenKept, and
//	    writes the cell in its own commit, while it holds the row's latch exclusively. No deletion of a row covers the cell.
//	T19. The entries of a part are above all entries of the tablet that were acknowledged before its commit began, and below all that are
//	    begun after it ends, on this server and all later ones (I2). They become visible together, and no commit gets its place in the log while
//	    they are being saved. A part is committed once: while clients may repeat its commit, the tablet's metadata has its id.
package tablet
