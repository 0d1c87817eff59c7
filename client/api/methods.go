package api

import "time"

// ProtocolVersion is the version of the data API in the result of ping. It grows with changes that
// a client must know of, not with additions that old clients can ignore.
const ProtocolVersion = 1

// The methods of the data API.
const (
	MethodPing            = "ping"
	MethodMutate          = "mutate"
	MethodMutateRows      = "mutate_rows"
	MethodBulkWrite       = "bulk_write"
	MethodBulkCommit      = "bulk_commit"
	MethodBulkAbort       = "bulk_abort"
	MethodRead            = "read"
	MethodReadRows        = "read_rows"
	MethodScanOpen        = "scan_open"
	MethodScanNext        = "scan_next"
	MethodScanClose       = "scan_close"
	MethodCheckAndMutate  = "check_and_mutate"
	MethodReadModifyWrite = "read_modify_write"
	MethodSampleRowKeys   = "sample_row_keys"
	MethodReadChanges     = "read_changes"
	MethodRoot            = "root"

	MethodCreateTable   = "create_table"
	MethodListTables    = "list_tables"
	MethodDescribeTable = "describe_table"
	MethodDropTable     = "drop_table"
	MethodRenameTable   = "rename_table"
	MethodUndropTable   = "undrop_table"
	MethodPurgeTable    = "purge_table"
	MethodListDropped   = "list_dropped_tables"
	MethodSetFamily     = "set_family"
	MethodDropFamily    = "drop_family"
	MethodAlterTable    = "alter_table"
	MethodClearRows     = "clear_rows"
	MethodCompactTable  = "compact_table"
	MethodSplitTablet   = "split_tablet"
	MethodMoveTablet    = "move_tablet"
	MethodMergeTablets  = "merge_tablets"
	MethodCompactTablet = "compact_tablet"
	MethodStatus        = "status"
	MethodActivity      = "activity"
	MethodSlowRequests  = "slow_requests"
	MethodTraces        = "traces"
	MethodAuditLog      = "audit_log"
	MethodLogLines      = "log_lines"
	MethodReportClient  = "report_client"
	MethodListClients   = "list_clients"

	MethodListNodes  = "list_nodes"
	MethodDrainNode  = "drain_node"
	MethodRemoveNode = "remove_node"
	MethodRaftStatus = "raft_status"

	MethodUnservedTablets = "unserved_tablets"

	MethodCreateToken = "create_token"
	MethodListTokens  = "list_tokens"
	MethodRevokeToken = "revoke_token"

	MethodRotateAuthority = "rotate_authority"
	MethodAuthorityStatus = "authority_status"

	MethodGrant      = "grant"
	MethodRevoke     = "revoke"
	MethodSetGrants  = "set_grants"
	MethodListGrants = "list_grants"
	MethodAddUser    = "add_user"
	MethodListUsers  = "list_users"
	MethodRevokeUser = "revoke_user"
	MethodRemoveUser = "remove_user"

	MethodDisableUser = "disable_user"
	MethodEnableUser  = "enable_user"
	MethodWhoami      = "whoami"

	MethodUsage   = "usage"
	MethodKeyHeat = "key_heat"

	MethodHotTablets = "hot_tablets"

	MethodSetQuota    = "set_quota"
	MethodListQuotas  = "list_quotas"
	MethodRemoveQuota = "remove_quota"
	MethodSetOwner    = "set_owner"

	MethodCreateBackup         = "create_backup"
	MethodListBackups          = "list_backups"
	MethodDeleteBackup         = "delete_backup"
	MethodRestoreBackup        = "restore_backup"
	MethodCreateBackupSchedule = "create_backup_schedule"
	MethodListBackupSchedules  = "list_backup_schedules"
	MethodDeleteBackupSchedule = "delete_backup_schedule"
	MethodBackupFiles          = "backup_files"
	MethodReadBackup           = "read_backup"
	MethodImportBackup         = "import_backup"

	MethodCreateReplication = "create_replication"
	MethodListReplications  = "list_replications"
	MethodPauseReplication  = "pause_replication"
	MethodResumeReplication = "resume_replication"
	MethodRemoveReplication = "remove_replication"
	MethodPromoteTable      = "promote_table"
	MethodSyncReplication   = "sync_replication"

	MethodAddCluster    = "add_cluster"
	MethodListClusters  = "list_clusters"
	MethodRemoveCluster = "remove_cluster"

	MethodCreateAppProfile = "create_app_profile"
	MethodListAppProfiles  = "list_app_profiles"
	MethodUpdateAppProfile = "update_app_profile"
	MethodDeleteAppProfile = "delete_app_profile"

	MethodCreateSchemaBundle = "create_schema_bundle"
	MethodListSchemaBundles  = "list_schema_bundles"
	MethodUpdateSchemaBundle = "update_schema_bundle"
	MethodDeleteSchemaBundle = "delete_schema_bundle"
)

// Methods lists every method of the data API.
func Methods() []string {
	return []string{
		MethodPing, MethodMutate, MethodMutateRows, MethodBulkWrite, MethodBulkCommit, MethodBulkAbort, MethodRead, MethodReadRows,
		MethodScanOpen, MethodScanNext, MethodScanClose,
		MethodCheckAndMutate, MethodReadModifyWrite, MethodSampleRowKeys, MethodReadChanges, MethodRoot,
		MethodCreateTable, MethodListTables, MethodDescribeTable, MethodRenameTable, MethodDropTable,
		MethodUndropTable, MethodPurgeTable, MethodListDropped,
		MethodSetFamily, MethodDropFamily, MethodAlterTable, MethodClearRows, MethodCompactTable,
		MethodSplitTablet, MethodMoveTablet, MethodMergeTablets, MethodCompactTablet, MethodStatus, MethodActivity, MethodSlowRequests, MethodTraces, MethodAuditLog, MethodLogLines, MethodReportClient, MethodListClients,
		MethodListNodes, MethodDrainNode, MethodRemoveNode, MethodRaftStatus, MethodUnservedTablets,
		MethodCreateToken, MethodListTokens, MethodRevokeToken,
		MethodRotateAuthority, MethodAuthorityStatus,
		MethodGrant, MethodRevoke, MethodSetGrants, MethodListGrants, MethodAddUser, MethodListUsers, MethodRevokeUser, MethodRemoveUser,
		MethodDisableUser, MethodEnableUser, MethodWhoami,
		MethodUsage, MethodKeyHeat, MethodHotTablets, MethodSetQuota, MethodListQuotas, MethodRemoveQuota, MethodSetOwner,
		MethodCreateBackup, MethodListBackups, MethodDeleteBackup, MethodRestoreBackup,
		MethodCreateBackupSchedule, MethodListBackupSchedules, MethodDeleteBackupSchedule, MethodBackupFiles, MethodReadBackup, MethodImportBackup,
		MethodCreateReplication, MethodListReplications, MethodPauseReplication, MethodResumeReplication, MethodRemoveReplication, MethodPromoteTable, MethodSyncReplication,
		MethodAddCluster, MethodListClusters, MethodRemoveCluster,
		MethodCreateAppProfile, MethodListAppProfiles, MethodUpdateAppProfile, MethodDeleteAppProfile,
		MethodCreateSchemaBundle, MethodListSchemaBundles, MethodUpdateSchemaBundle, MethodDeleteSchemaBundle,
		MethodBlobOpen, MethodBlobWrite, MethodBlobSeal, MethodBlobAbort, MethodBlobRead,
		MethodBlobStat, MethodBlobList, MethodBlobDelete,
		MethodBlobRevive, MethodBlobResumeSweep, MethodBlobFsck, MethodBlobStatus,
	}
}

// Bounds of the methods, in addition to table.Limits.
const (
	// BatchMutationsMax is the number of mutations in one mutate_rows, over all its rows. Decoded,
	// they take about 50 MB.
	BatchMutationsMax = 500_000
	// ReadRowsMax is the number of rows in one read_rows.
	ReadRowsMax = 10_000
	// ResultBytesMax bounds the result of read and read_rows, and a single row of a scan: 128 MiB, more than the largest cell. A larger single row is ErrRowTooLarge;
	// several rows are a table.LimitError of ResultBytes.
	ResultBytesMax = 128 << 20
	// RulesMax is the number of rules in one read_modify_write.
	RulesMax = 1000

	// SplitAtMax is the number of split points of a create_table, and SplitAtBytesMax their total
	// size. They are stored in a file of the lock service.
	SplitAtMax      = 10_000
	SplitAtBytesMax = 192 << 10

	// TabletsRequestedMax is the number of tablets up to which split_tablet splits a table. Automatic
	// splits of large tablets are not bound by it.
	TabletsRequestedMax = 10_000

	// ScanBatchRows and ScanBatchBytes are the defaults of batch_rows and batch_bytes;
	// ScanBatchRowsMax and ScanBatchBytesMax are the maximums. The default is 256 KiB because
	// buffers up to 1 MiB are pooled. With batches of 1 MiB, whose buffers just exceed that, a scan
	// of 1000-byte rows took three times as long (BenchmarkScan).
	ScanBatchRows     = 1000
	ScanBatchRowsMax  = 100_000
	ScanBatchBytes    = 256 << 10
	ScanBatchBytesMax = 16 << 20
	// CursorIdle is how long a scan's cursor stays open without being used. 60 s is long enough to
	// process a batch and short enough that abandoned cursors do no harm.
	CursorIdle = 60 * time.Second
	// CursorsMax is the number of open cursors on one node, CursorsOfUserMax that of one user.
	// Further ones are rejected as overloaded.
	CursorsMax       = 10_000
	CursorsOfUserMax = CursorsMax / 4
)

// ResultBytes is the LimitError.What of a read_rows whose rows together exceed ResultBytesMax or
// the node's free memory; read fewer rows at a time.
const ResultBytes = "result bytes"
