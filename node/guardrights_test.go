package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/security/acl"
)

// The audiences of requiredRights.
const (
	forNodes     = "nodes"
	forAll       = "anonymous"
	forUsers     = "any user"
	perRow       = "checked by the method"
	seesTable    = "sees the table"
	readCluster  = "read on the cluster"
	watchCluster = "monitor on the cluster"
	writeCluster = "write on the cluster"
	adminCluster = "admin on the cluster"
	readTable    = "read on the table"
	adminTable   = "admin on the table"
)

// requiredRights has every RPC method with the right that its caller needs. It is written by hand and repeats the guards
// on purpose: a guard that is weakened by mistake differs from it, and a new method fails the test until its right is
// decided here too. Nodes of the cluster may call every method; nodeMethods lists those that are for nodes alone.
var requiredRights = map[string]string{
	"ping":          forAll,
	"auth":          forAll,
	"security.join": forAll,

	"whoami":      forUsers,
	"list_tables": forUsers, // lists the tables that the user sees
	"grant":       forUsers, // checked by the method: admin on the table or the cluster
	"revoke":      forUsers, // likewise
	"set_grants":  forUsers, // likewise
	"list_grants": forUsers, // likewise, or the user's own
	"usage":       forUsers, // likewise
	"hot_tablets": forUsers, // of the tables that the user may read as a whole

	"list_app_profiles": forUsers,
	"report_client":     forUsers, // about the user's own process

	"mutate":            perRow,
	"mutate_rows":       perRow,
	"bulk_write":        perRow,
	"bulk_commit":       perRow,
	"bulk_abort":        perRow,
	"read":              perRow,
	"read_rows":         perRow,
	"scan_open":         perRow,
	"read_changes":      perRow,
	"scan_next":         perRow,
	"scan_close":        perRow,
	"check_and_mutate":  perRow,
	"read_modify_write": perRow,
	"meta.keep_alive":   perRow, // checked by package lockserver

	"root":                seesTable,
	"describe_table":      seesTable,
	"list_schema_bundles": seesTable,
	"sample_row_keys":     seesTable,

	"key_heat": readTable,

	"drop_table":     adminTable,
	"set_family":     adminTable,
	"drop_family":    adminTable,
	"alter_table":    adminTable,
	"clear_rows":     adminTable,
	"compact_table":  adminTable,
	"split_tablet":   adminTable,
	"move_tablet":    adminTable,
	"merge_tablets":  adminTable,
	"compact_tablet": adminTable,

	"status":            watchCluster,
	"activity":          watchCluster,
	"slow_requests":     readCluster,
	"traces":            readCluster,
	"audit_log":         adminCluster,
	"log_lines":         readCluster,
	"list_clients":      readCluster,
	"list_nodes":        watchCluster,
	"raft_status":       watchCluster,
	"unserved_tablets":  readCluster,
	"list_quotas":       watchCluster,
	"list_backups":      readCluster,
	"list_replications": readCluster,
	"list_clusters":     watchCluster,

	"list_backup_schedules": readCluster,

	"list_dropped_tables": readCluster,

	"blob_read":   readCluster,
	"blob_stat":   readCluster,
	"blob_list":   readCluster,
	"blob_status": watchCluster,

	"blob_open":            writeCluster,
	"blob_write":           writeCluster,
	"blob_seal":            writeCluster,
	"blob_abort":           writeCluster,
	"meta.open_session":    writeCluster,
	"meta.close_session":   writeCluster,
	"meta.get":             writeCluster,
	"meta.stat":            writeCluster,
	"meta.list":            writeCluster,
	"meta.read_directory":  writeCluster,
	"meta.set":             writeCluster,
	"meta.delete":          writeCluster,
	"meta.set_acl":         writeCluster,
	"meta.acquire":         writeCluster,
	"meta.release":         writeCluster,
	"meta.check_sequencer": writeCluster,
	"meta.watch":           writeCluster,
	"meta.unwatch":         writeCluster,

	"create_table":      adminCluster,
	"rename_table":      adminCluster,
	"undrop_table":      adminCluster,
	"purge_table":       adminCluster,
	"drain_node":        adminCluster,
	"remove_node":       adminCluster,
	"blob_delete":       adminCluster,
	"blob_fsck":         adminCluster,
	"blob_revive":       adminCluster,
	"blob_resume_sweep": adminCluster,
	"add_user":          adminCluster,
	"list_users":        adminCluster,
	"revoke_user":       adminCluster,
	"remove_user":       adminCluster,
	"disable_user":      adminCluster,
	"enable_user":       adminCluster,
	"set_quota":         adminCluster,
	"remove_quota":      adminCluster,
	"set_owner":         adminCluster,
	"create_token":      adminCluster,
	"list_tokens":       adminCluster,
	"revoke_token":      adminCluster,
	"rotate_authority":  adminCluster,
	"authority_status":  adminCluster,
	"create_backup":     adminCluster,

	"create_backup_schedule": adminCluster,
	"delete_backup_schedule": adminCluster,

	"delete_backup":      adminCluster,
	"restore_backup":     adminCluster,
	"backup_files":       adminCluster,
	"read_backup":        adminCluster,
	"import_backup":      adminCluster,
	"create_replication": adminCluster,
	"pause_replication":  adminCluster,
	"resume_replication": adminCluster,
	"remove_replication": adminCluster,
	"promote_table":      adminCluster,
	"sync_replication":   adminCluster,
	"add_cluster":        adminCluster,
	"remove_cluster":     adminCluster,
	"create_app_profile": adminCluster,
	"update_app_profile": adminCluster,
	"delete_app_profile": adminCluster,

	"create_schema_bundle": adminTable,
	"update_schema_bundle": adminTable,
	"delete_schema_bundle": adminTable,
}

// nodeMethods are for nodes alone.
var nodeMethods = strings.Fields(`
	blob.abort blob.begin blob.check blob.copy blob.drop blob.drop_blob blob.list blob.piece blob.read blob.reread
	blob.resume blob.seal blob.set_holders blob.stat blob.verify
	cluster.act_for cluster.hail cluster.hello cluster.join cluster.merge_tablets cluster.move_tablet cluster.nudge
	cluster.on_behalf cluster.promise cluster.quota_report cluster.start_voting cluster.unserved_tablets
	cluster.who
	log.append log.cut log.drop log.fence log.list log.open log.read log.refill log.stat log.verify
	row.follow security.authority security.gossip_key security.issuer security.renew
	sweep.begin sweep.clear sweep.end sweep.extents sweep.judge sweep.judge_replicas sweep.pins sweep.replicas
	sweep.revive
	tablet.clear tablet.compact tablet.compact_one tablet.describe tablet.heat tablet.heat_sums tablet.held tablet.load tablet.merge
	tablet.snapshot tablet.snapshot_changes tablet.sort_piece tablet.split tablet.unload tablet.usage
`)

// selfAudited are the changes of administrators that write their audit records themselves.
var selfAudited = strings.Fields(`split_tablet move_tablet merge_tablets compact_tablet set_quota remove_quota set_owner create_token read_backup`)

// byMaster are the methods that the master's node executes.
var byMaster = strings.Fields(`
	create_table rename_table drop_table undrop_table purge_table set_family drop_family alter_table remove_node grant revoke set_grants add_user revoke_user remove_user disable_user
	enable_user set_quota remove_quota set_owner create_token rotate_authority revoke_token
	create_backup delete_backup restore_backup import_backup create_backup_schedule delete_backup_schedule
	create_replication list_replications pause_replication resume_replication remove_replication promote_table sync_replication
	add_cluster remove_cluster create_app_profile update_app_profile delete_app_profile
	create_schema_bundle update_schema_bundle delete_schema_bundle
`)

// guardText returns what a guard demands, in the words of requiredRights.
func guardText(g authz.Guard) string {
	switch g.To {
	case authz.Nodes:
		return forNodes
	case authz.Strangers:
		return forAll
	case authz.Known:
		return forUsers
	case authz.Own:
		return perRow
	case authz.OfTable:
		return seesTable
	case authz.Right:
		return g.Right.String() + " on the cluster"
	case authz.RightOfTable:
		return g.Right.String() + " on the table"
	}
	return fmt.Sprintf("audience %d", g.To)
}

// TestRequiredRights pins the right that each method demands of its caller.
func TestRequiredRights(t *testing.T) {
	required := maps.Clone(requiredRights)
	for _, method := range nodeMethods {
		if required[method] != "" {
			t.Errorf("%q is entered twice", method)
		}
		required[method] = forNodes
	}
	n, _ := startInternal(t)
	guards := n.authz.Guards
	for _, method := range slices.Sorted(maps.Keys(guards)) {
		want, ok := required[method]
		switch got := guardText(guards[method]); {
		case !ok:
			t.Errorf("%q is for %q: enter the right that it requires in requiredRights or nodeMethods", method, got)
		case got != want:
			t.Errorf("%q is for %q, want %q", method, got, want)
		}
	}
	for method := range required {
		if _, ok := guards[method]; !ok {
			t.Errorf("%q has no guard", method)
		}
	}
}

// TestGuardsOfChanges pins which changes write their own audit records, and which ones the master's node executes. The subject of
// each other change of the cluster is in its record.
func TestGuardsOfChanges(t *testing.T) {
	n, _ := startInternal(t)
	for method, g := range n.authz.Guards {
		if want := slices.Contains(selfAudited, method); g.SelfAudited != want {
			t.Errorf("%q writes its own audit record: %v, want %v", method, g.SelfAudited, want)
		}
		if want := slices.Contains(byMaster, method); g.Master != want {
			t.Errorf("%q is executed by the master's node: %v, want %v", method, g.Master, want)
		}
		if want := needLeader[method]; g.Leader != want {
			t.Errorf("%q needs the lock service's leader: %v, want %v", method, g.Leader, want)
		}
		if g.To == authz.Right && g.Right == acl.Admin && !g.SelfAudited && g.About == nil {
			t.Errorf("%q changes the cluster, and its audit record has no subject", method)
		}
	}
}

// needLeader are the methods that fail at once while the lock service has no leader.
var needLeader = map[string]authz.LeaderUse{
	api.MethodRoot: authz.LeaderThroughout, api.MethodListTables: authz.LeaderThroughout, api.MethodHotTablets: authz.LeaderThroughout, api.MethodDescribeTable: authz.LeaderThroughout,
	api.MethodCreateTable: authz.LeaderFirst, api.MethodDropTable: authz.LeaderFirst, api.MethodSetFamily: authz.LeaderFirst, api.MethodDropFamily: authz.LeaderFirst,
	api.MethodRenameTable: authz.LeaderFirst, api.MethodUndropTable: authz.LeaderFirst, api.MethodPurgeTable: authz.LeaderFirst, api.MethodListDropped: authz.LeaderThroughout,
	api.MethodAlterTable: authz.LeaderFirst, api.MethodClearRows: authz.LeaderFirst,
	api.MethodCompactTable: authz.LeaderFirst, api.MethodSplitTablet: authz.LeaderFirst, api.MethodMoveTablet: authz.LeaderFirst, api.MethodMergeTablets: authz.LeaderFirst,
	api.MethodCompactTablet: authz.LeaderFirst,
	api.MethodCreateBackup:  authz.LeaderFirst, api.MethodDeleteBackup: authz.LeaderFirst, api.MethodRestoreBackup: authz.LeaderFirst, api.MethodImportBackup: authz.LeaderFirst, api.MethodListBackups: authz.LeaderThroughout,
	api.MethodCreateBackupSchedule: authz.LeaderFirst, api.MethodDeleteBackupSchedule: authz.LeaderFirst, api.MethodListBackupSchedules: authz.LeaderThroughout,
	api.MethodCreateReplication: authz.LeaderFirst, api.MethodListReplications: authz.LeaderThroughout, api.MethodPauseReplication: authz.LeaderFirst,
	api.MethodResumeReplication: authz.LeaderFirst, api.MethodRemoveReplication: authz.LeaderFirst, api.MethodPromoteTable: authz.LeaderFirst,
	api.MethodSyncReplication: authz.LeaderThroughout,
	api.MethodAddCluster:      authz.LeaderFirst, api.MethodListClusters: authz.LeaderThroughout, api.MethodRemoveCluster: authz.LeaderFirst,
	api.MethodCreateAppProfile: authz.LeaderFirst, api.MethodListAppProfiles: authz.LeaderThroughout, api.MethodUpdateAppProfile: authz.LeaderFirst,
	api.MethodDeleteAppProfile:   authz.LeaderFirst,
	api.MethodCreateSchemaBundle: authz.LeaderFirst, api.MethodListSchemaBundles: authz.LeaderThroughout, api.MethodUpdateSchemaBundle: authz.LeaderFirst,
	api.MethodDeleteSchemaBundle: authz.LeaderFirst,
}
