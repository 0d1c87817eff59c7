package planted

import "slices"

// With returns the bugs that b needs to have an effect, and b.
func With(b Bug) []Bug {
	if b == NotFenced {
		return []Bug{b, LeaseNotChecked}
	}
	return []Bug{b}
}

// All returns all bugs, by layer.
func All() []Bug { return slices.Clone(all) }

// Bugs of Raft, the lock service and its sessions.
const (
	// SnapshotEndForgotten: a voter whose log is empty after a snapshot was installed does not know
	// the snapshot's last entry. If the answer to the next entries is lost, it rejects the leader's
	// entries and gets the same snapshot for ever. Without the leader, the other voters elect none.
	// Breaks: after faults have healed, a voter catches up. Until 8f4d864.
	SnapshotEndForgotten Bug = "snapshot-end-forgotten"
	// LateSnapshot: a repeated or late snapshot of the current term is installed over newer entries.
	// Breaks: an acknowledged change of the lock service is never lost; a voter does not panic. Until
	// 8f4d864.
	LateSnapshot Bug = "late-snapshot"
	// SnapshotUnverified: the checksums of a snapshot are verified neither where it is sent nor
	// before it replaces the log where it is received. Breaks: one flipped bit on one disk costs no
	// other voter its state. Until 8f4d864.
	SnapshotUnverified Bug = "snapshot-unverified"
	// MembersHidden: a configuration that was removed from the log still hides the one that replaced
	// it at a lower index. Breaks: votes of a member count; a removed server learns of it. Until
	// 8f4d864.
	MembersHidden Bug = "members-hidden"
	// CommitUnproven: a follower commits to the end of its log although the message does not prove
	// that end to be the leader's. Breaks: an acknowledged change of the lock service is on all
	// voters. Until 8f4d864.
	CommitUnproven Bug = "commit-unproven"
	// IDsRolledBack: the ids of tables and tablets continue where the recovered lock service knows
	// them, not above those that the lost voters issued. Breaks: an id is issued once. Until 82e8863.
	IDsRolledBack Bug = "ids-rolled-back"
	// LeaderUnverified: a leader answers reads and KeepAlives without asking the other voters whether
	// it still leads. Breaks: reads of the lock service are linearizable; a lock has one holder.
	LeaderUnverified Bug = "leader-unverified"
	// LeaseFromAnswer: a session's lease starts when the answer arrived instead of when the request
	// was sent. Breaks: a lock has one holder.
	LeaseFromAnswer Bug = "lease-from-answer"
	// SessionsCut: a new leader expects that a part of each session's lease has passed already.
	// Breaks: a lock has one holder.
	SessionsCut Bug = "sessions-cut"
	// InvalidationNotAwaited: a change of a file does not wait until the sessions that cache it have
	// acknowledged the invalidation. Breaks: a change that has returned holds on every node, as a
	// revoked right or a dropped family.
	InvalidationNotAwaited Bug = "invalidation-not-awaited"
	// StaleFetchCached: a session caches an answer that was read before the file was invalidated.
	// Breaks: as InvalidationNotAwaited.
	StaleFetchCached Bug = "stale-fetch-cached"
	// SequencerNotCompared: a sequencer is valid as long as the lock is held in its mode, by whichever
	// holder. Breaks: a former holder's guarded change is rejected.
	SequencerNotCompared Bug = "sequencer-not-compared"
)

// Bugs of the master, of METADATA and of the assignment of tablets.
const (
	// VotersFrozen: nodes that are full, or that failed to join the group, are chosen as voters again
	// and again. Breaks: a dead voter is replaced. Until 646a286.
	VotersFrozen Bug = "voters-frozen"
	// FailingServerLightest: a server that fails loads counts as the one with the least load and is
	// given all tablets. Breaks: after faults have healed, all tablets are served soon. Until 72deda7.
	FailingServerLightest Bug = "failing-server-lightest"
	// LoadBeforeSorted: the tablets of a dead server are loaded before its log is sorted. Breaks: an
	// acknowledged write is never lost.
	LoadBeforeSorted Bug = "load-before-sorted"
	// LogsRemovedEarly: a dead server's sorted log is removed when its tablets are served by others,
	// although they are not written out. Breaks: an acknowledged write survives a second crash.
	LogsRemovedEarly Bug = "logs-removed-early"
	// FormerMaster: commands of former masters are executed. Breaks: one server serves a row.
	FormerMaster Bug = "former-master"
	// MetadataUnchecked: a row of METADATA is replaced without a check of its generation. Breaks: one
	// server serves a row; an acknowledged write is never lost.
	MetadataUnchecked Bug = "metadata-unchecked"
	// MetaOutcomeAssumed: a change of METADATA of unknown outcome counts as not made, and the files
	// that it names are deleted. Breaks: no live blob is deleted.
	MetaOutcomeAssumed Bug = "meta-outcome-assumed"
	// LoadWithoutRuns: a tablet is loaded without the log entries of failed servers. Breaks: an
	// acknowledged write is never lost.
	LoadWithoutRuns Bug = "load-without-runs"
	// RecoveredTooSoon: METADATA forgets the dead servers of a tablet when it is loaded instead of when
	// it is written out. Breaks: an acknowledged write survives a second crash.
	RecoveredTooSoon Bug = "recovered-too-soon"
)

// Bugs of tablets and their servers.
const (
	// DroppedTableServed: a table that is dropped while one of its tablets is loaded is served for
	// another second. Breaks: no write into a dropped table is acknowledged. Until 7fd6f02.
	DroppedTableServed Bug = "dropped-table-served"
	// LogIDKept: each attempt to create a server's commit log uses the same id, and a server keeps a
	// tablet of METADATA that it cannot load. If the answer to the first attempt is lost, METADATA is
	// not served until the process restarts. Breaks: after faults have healed, all tablets are
	// served. Until d287cb1.
	LogIDKept Bug = "log-id-kept"
	// ControlBehindLog: drops, unloads, splits and merges wait for the append under way. On full
	// disks, of which one is lost, it never ends. Breaks: dropping a table frees space. Until 20b4510.
	ControlBehindLog Bug = "control-behind-log"
	// CompactionsStop: the compactions of all tablets wait for one whose change of METADATA has an
	// unknown outcome. Breaks: compactions go on, and writes with them. Until 37e37fe.
	CompactionsStop Bug = "compactions-stop"
	// LeaseNotChecked: a tablet server serves without a valid lease. Breaks: one server serves a row.
	LeaseNotChecked Bug = "lease-not-checked"
	// RedoTooFar: a minor compaction moves the redo point past entries that arrived while it ran.
	// Breaks: an acknowledged write is never lost.
	RedoTooFar Bug = "redo-too-far"
	// RedoBeforeChangeFile: a minor compaction moves the redo point in one change of METADATA, and adds the change file in another
	// one. Breaks: each acknowledged mutation of a table with a change stream is in its stream.
	RedoBeforeChangeFile Bug = "redo-before-change-file"
	// OperandTwice: a tablet that is recovered gets again the operands that its log has at or below the redo point. Breaks: each
	// operand of an aggregate family is folded once.
	OperandTwice Bug = "operand-twice"
	// OperandDropped: a compaction keeps the last operand of a cell and drops the others. Breaks: the cell of
	// an aggregate family is the fold of all acknowledged operands.
	OperandDropped Bug = "operand-dropped"
	// TokenIgnored: a mutation is made each time that it is sent, whatever its idempotency token. Breaks: a mutation with a token is made once.
	TokenIgnored Bug = "token-ignored"
	// ClockOnly: a newly loaded tablet assigns timestamps by the clock, regardless of those
	// assigned before. Breaks: a later write has the later timestamp.
	ClockOnly Bug = "clock-alone"
	// StampsRounded: the log of a dead server is sorted with timestamps that are rounded down to milliseconds. Breaks: the timestamp
	// of a cell never changes.
	StampsRounded Bug = "stamps-rounded"
	// DeletionsLast: the deletions of a mutation are made after its other changes. Breaks: the changes of a mutation apply in order.
	DeletionsLast Bug = "deletions-last"
	// VersionsReappear: a version that was collected because newer ones existed is live again once these were deleted. Breaks: what a
	// read returns does not depend on compactions.
	VersionsReappear Bug = "versions-reappear"
	// ClearNotSaved: a range of rows that is cleared is not recorded in METADATA. Breaks: cleared rows stay cleared on all later servers.
	ClearNotSaved Bug = "clear-not-saved"
	// SplitWithoutBounds: the parts of a split tablet include all rows of its files instead of only
	// their own. Breaks: deleted rows stay deleted.
	SplitWithoutBounds Bug = "split-without-bounds"
	// SplitLosesMemtable: a split gives the new tablets the frozen memtables, but not the active one.
	// Breaks: an acknowledged write is read.
	SplitLosesMemtable Bug = "split-loses-memtable"
	// SplitForgetsLog: after a split the log records of shared memtables count as written out. Breaks:
	// an acknowledged write is never lost.
	SplitForgetsLog Bug = "split-forgets-log"
	// SplitRowLost: the row at which a tablet was split is in neither part of the files and
	// memtables that they share. Breaks: an acknowledged write is read.
	SplitRowLost Bug = "split-row-lost"
	// MergeLosesMemtable: a merge of tablets does not write out what was written since it began.
	// Breaks: an acknowledged write is read.
	MergeLosesMemtable Bug = "merge-loses-memtable"
	// UnloadWhileWritten: an unload does not stop writes before the last minor compaction. Breaks: an
	// acknowledged write is never lost.
	UnloadWhileWritten Bug = "unload-while-written"
	// CheckWithoutLatch: a read-modify-write does not lock its row. Breaks: it is atomic.
	CheckWithoutLatch Bug = "check-without-latch"
	// SchemaNotChecked: a tablet server uses the schema it has, even if the table has changed. Breaks:
	// no write into a dropped table or family is acknowledged.
	SchemaNotChecked Bug = "schema-not-checked"
	// FamilyReused: the cells of a dropped family belong to a new family of its name. Breaks: what was
	// dropped is never read again.
	FamilyReused Bug = "family-reused"
	// DeletionsDroppedEarly: a merging compaction that takes the newest files instead of the oldest
	// drops their deletions. Breaks: deleted cells stay deleted.
	DeletionsDroppedEarly Bug = "deletions-dropped-early"
	// FilterHidesDeletions: a read of one column skips a file whose Bloom filter lacks the column,
	// although the file has a deletion of the row. Breaks: deleted cells stay deleted.
	FilterHidesDeletions Bug = "filter-hides-deletions"
	// BackupUnshared: the files of a backup are not marked as shared: a compaction that replaces one deletes it. Breaks: a backup can be
	// restored.
	BackupUnshared Bug = "backup-unshared"
	// BackupUnflushed: a backup has the files of a tablet, and lacks what is in its memtables. Breaks: a backup has all that was
	// acknowledged before its request.
	BackupUnflushed Bug = "backup-unflushed"
	// ChargeLeaked: a write that meets a fence is retried without releasing the memory that it was
	// charged. Breaks: memory for writes is released; a server does not stay overloaded.
	ChargeLeaked Bug = "charge-leaked"
	// BlockedForEver: writes stay rejected for full disks if the tablet that could not be written out
	// was unloaded meanwhile. Breaks: when disks have space again, writes are accepted.
	BlockedForEver Bug = "blocked-for-ever"
)

// Bugs of the block store.
const (
	// AckBeforeSync: a replica of a commit log acknowledges frames before it has written them. Breaks:
	// an acknowledged write survives a loss of power.
	AckBeforeSync Bug = "ack-before-sync"
	// AckOneReplica: an append is acknowledged when one replica has it instead of all. Breaks: an
	// acknowledged write survives the loss of a node.
	AckOneReplica Bug = "ack-one-replica"
	// NotFenced: a replica answers appends of a fenced writer as if it had accepted them. A server
	// that checks its lease does not get that far, so detection also requires LeaseNotChecked.
	// Breaks: an acknowledged write is never lost.
	NotFenced Bug = "not-fenced"
	// SealTooShort: a replica that lacks the end of an extent accepts its seal at the full length.
	// Breaks: an acknowledged write is never lost; a log can be read to its end.
	SealTooShort Bug = "seal-too-short"
	// RecoveryUnclaimed: a recovery begins to fence and to seal a log before the list of its extents
	// names the recovery's epoch. Breaks: an acknowledged write is never lost.
	RecoveryUnclaimed Bug = "recovery-unclaimed"
	// StandbyIgnored: the recovery of a log ignores frames in the extent that its writer prepared
	// last. Breaks: an acknowledged write is never lost.
	StandbyIgnored Bug = "standby-ignored"
	// SlowReplicaLeft: a log leaves an extent with a slow replica although no node has space for
	// another extent. Breaks: while all replicas are well, writes are accepted. Until 7462c62.
	SlowReplicaLeft Bug = "slow-replica-left"
	// LastReplicaDropped: a surplus replica is dropped without reading one of those that stay, which
	// may all be corrupt. Breaks: the last good replica is never dropped. Until 232bdee.
	LastReplicaDropped Bug = "last-replica-dropped"
	// ReplicaCountsItself: a surplus replica that is about to be dropped counts itself among those
	// that stay. Breaks: an extent keeps its replicas.
	ReplicaCountsItself Bug = "replica-counts-itself"
	// DeadNeverGone: the replicas of a node that stays dead are never replaced. Breaks: an extent gets
	// its replicas back.
	DeadNeverGone Bug = "dead-never-gone"
	// GCWithoutPins: garbage collection ignores blobs that nodes are using or have just written.
	// Breaks: no live extent is deleted.
	GCWithoutPins Bug = "gc-without-pins"
	// BackupsUnmarked: garbage collection ignores the files of backups. Breaks: a backup can be restored.
	BackupsUnmarked Bug = "backups-unmarked"
	// GarbageForgotten: each round of garbage collection counts its garbage as found just now.
	// Breaks: dead extents are deleted in time.
	GarbageForgotten Bug = "garbage-forgotten"
	// ReserveIgnored: all extents may use the reserve of a disk. Breaks: on a full disk the operations
	// that free space go on.
	ReserveIgnored Bug = "reserve-ignored"
)

// Bugs of clients.
const (
	// ScanRepeats: a scan that lost its cursor starts over. Breaks: a scan returns each row once, in
	// order.
	ScanRepeats Bug = "scan-repeats"
	// ScanNextAgain: the request for the next batch of a scan is repeated if its answer was lost.
	// Breaks: a scan returns all rows.
	ScanNextAgain Bug = "scan-next-again"
	// IncrementAgain: a client retries an increment with an unknown outcome. Breaks: an increment is
	// executed at most once.
	IncrementAgain Bug = "increment-again"
	// CacheForEver: a client never drops a cached tablet location. Breaks: a client finds a tablet that
	// has moved.
	CacheForEver Bug = "cache-for-ever"
)

// Bugs of nodes: rights, quotas, replications and membership.
const (
	// RightsForEver: a node uses a connection's last view of a table's rights even if rights have
	// changed. Breaks: a revoked right is not in force any more.
	RightsForEver Bug = "rights-for-ever"
	// TokenForEver: the record of an access token is read once for each connection. Breaks: a revoked
	// token is not valid any more.
	TokenForEver Bug = "token-for-ever"
	// KeptTableDiscarded: servers treat a table that was dropped and is kept as one that was dropped for good. Breaks: an undropped
	// table has all its rows.
	KeptTableDiscarded Bug = "kept-table-discarded"
	// RestoredTooLate: a restore to a time also makes the changes after it. Breaks: a restored table is as it was at its time.
	RestoredTooLate Bug = "restored-too-late"
	// ViewRowsOpen: a view shows all rows. Breaks: reads through a view show only what is of it.
	ViewRowsOpen Bug = "view-rows-open"
	// RenameNotFollowed: servers serve the tablets of a table that is renamed by its old name. Breaks: a table has one name, which is the new one
	// once the rename has returned.
	RenameNotFollowed Bug = "rename-not-followed"
	// PositionBeforeData: the worker of a replication saves the position after a page of changes before it makes them. Breaks: each
	// change of the source is made in the follower.
	PositionBeforeData Bug = "position-before-data"
	// RowPositionIgnored: a tablet server makes each change of a replication, also one that the row has. Breaks: each change of the source is made once, and a row
	// of the follower is never in an earlier state again.
	RowPositionIgnored Bug = "row-position-ignored"
	// ClearUnpositioned: a clear of the source deletes a row of the follower whatever its position. Breaks: what was written after a clear stays.
	ClearUnpositioned Bug = "clear-unpositioned"
	// FailedRowSkipped: the worker of a replication goes on after a change that failed. Breaks: each change of the source is made in the follower.
	FailedRowSkipped Bug = "failed-row-skipped"
	// FamilyIDsIgnored: a mutation of a family that the source has dropped is made in the family that has its name now. Breaks: what was dropped in the source is
	// not read in the follower.
	FamilyIDsIgnored Bug = "family-ids-ignored"
	// CopyUnchecked: rows that change while they are copied are not read again. Breaks: each change of the source is made in the follower, operands once.
	CopyUnchecked Bug = "copy-unchecked"
	// QuotaNotDivided: each server gets the whole rate of a quota. Breaks: the cluster executes no more
	// than the quota permits.
	QuotaNotDivided Bug = "quota-not-divided"
	// RemovedReadmitted: nodes believe what others report of a node that was removed. Breaks: a removed
	// node is not a member on any node. Until 9d83b43.
	RemovedReadmitted Bug = "removed-readmitted"
)

// all is the list of All.
var all = []Bug{
	SnapshotEndForgotten, LateSnapshot, SnapshotUnverified, MembersHidden, CommitUnproven, IDsRolledBack,
	LeaderUnverified, LeaseFromAnswer, SessionsCut, InvalidationNotAwaited, StaleFetchCached, SequencerNotCompared,

	VotersFrozen, FailingServerLightest, LoadBeforeSorted, LogsRemovedEarly, FormerMaster, MetadataUnchecked,
	MetaOutcomeAssumed, LoadWithoutRuns, RecoveredTooSoon,

	DroppedTableServed, LogIDKept, ControlBehindLog, CompactionsStop, LeaseNotChecked, RedoTooFar, RedoBeforeChangeFile, OperandTwice, OperandDropped, TokenIgnored, ClockOnly, StampsRounded, DeletionsLast, VersionsReappear,
	ClearNotSaved, SplitWithoutBounds, SplitLosesMemtable, SplitForgetsLog, SplitRowLost, MergeLosesMemtable, UnloadWhileWritten,
	CheckWithoutLatch, SchemaNotChecked, FamilyReused, DeletionsDroppedEarly, FilterHidesDeletions, ChargeLeaked,
	BlockedForEver, BackupUnshared, BackupUnflushed,

	AckBeforeSync, AckOneReplica, NotFenced, SealTooShort, RecoveryUnclaimed, StandbyIgnored, SlowReplicaLeft,
	LastReplicaDropped, ReplicaCountsItself, DeadNeverGone, GCWithoutPins, BackupsUnmarked, GarbageForgotten, ReserveIgnored,

	ScanRepeats, ScanNextAgain, IncrementAgain, CacheForEver,

	RightsForEver, TokenForEver, KeptTableDiscarded, RestoredTooLate, ViewRowsOpen, RenameNotFollowed, QuotaNotDivided, RemovedReadmitted,

	PositionBeforeData, RowPositionIgnored, ClearUnpositioned, FailedRowSkipped, FamilyIDsIgnored, CopyUnchecked,
}
