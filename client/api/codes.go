package api

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// The error codes of the data API. They travel on the wire and are append-only.
const (
	CodeTableNotFound  rpc.Code = 100
	CodeTableExists    rpc.Code = 101
	CodeFamilyNotFound rpc.Code = 102
	CodeBadName        rpc.Code = 103
	CodeLimitExceeded  rpc.Code = 104
	CodeBadFilter      rpc.Code = 105
	CodeNotServing     rpc.Code = 106
	CodeCorrupt        rpc.Code = 107
	CodeDiskFull       rpc.Code = 108
	CodeCursorExpired  rpc.Code = 109
	CodeConflict       rpc.Code = 110
	CodeNotANumber     rpc.Code = 111
	CodeBadTimestamp   rpc.Code = 112
	CodeBadMutation    rpc.Code = 113
	// 114 meant that a locality group in use cannot be removed. No method removes one; the number
	// stays unused.
	CodeRowTooLarge    rpc.Code = 115
	CodeBadRowKey      rpc.Code = 116
	CodeBadSchema      rpc.Code = 117
	CodeGroupNotFound  rpc.Code = 118
	CodeNodeNotFound   rpc.Code = 119
	CodeNodeInUse      rpc.Code = 120
	CodeStaleEpoch     rpc.Code = 121
	CodeBlobNotFound   rpc.Code = 122
	CodeUploadExpired  rpc.Code = 123
	CodeSystemTable    rpc.Code = 124
	CodeOutcomeUnknown rpc.Code = 125
	CodeTabletNotFound rpc.Code = 126
	CodeBadSplit       rpc.Code = 127
	CodeTabletBusy     rpc.Code = 128
	CodeNodeNotAlive   rpc.Code = 129
	CodeTokenRefused   rpc.Code = 130
	CodeUserNotFound   rpc.Code = 131
	CodeGrantNotFound  rpc.Code = 132
	CodeLastAdmin      rpc.Code = 133
	CodeNoIssuer       rpc.Code = 134
	CodeOpenCluster    rpc.Code = 135
	CodeRollover       rpc.Code = 136
	CodeTableReplaced  rpc.Code = 137

	CodeQuotaExceeded rpc.Code = 140
	CodeQuotaNotFound rpc.Code = 141

	CodeBackupNotFound rpc.Code = 142
	CodeBackupNotMade  rpc.Code = 143

	CodeTableProtected rpc.Code = 146

	CodeOutOfRange     rpc.Code = 150
	CodeNoChangeStream rpc.Code = 151
	CodeRestoreTime    rpc.Code = 152

	CodeFollower            rpc.Code = 153
	CodeNotFollower         rpc.Code = 154
	CodeReplicationNotFound rpc.Code = 155
	CodeReplicationExists   rpc.Code = 156

	CodeViewNotFound rpc.Code = 157

	CodeClusterNotFound rpc.Code = 158

	CodeAppProfileNotFound rpc.Code = 159
	CodeAppProfileExists   rpc.Code = 160
	CodeAppProfileChanged  rpc.Code = 161

	CodeSchemaBundleNotFound rpc.Code = 162
	CodeSchemaBundleExists   rpc.Code = 163
	CodeSchemaBundleChanged  rpc.Code = 164

	CodeGrantsChanged rpc.Code = 165

	CodeBulkExpired   rpc.Code = 166
	CodeBulkRefused   rpc.Code = 167
	CodeTableReadOnly rpc.Code = 168
)

// kinds is in the order in which ToRPC tries them: an error that wraps others comes before them,
// and an unknown outcome comes first.
var kinds = errkind.Table{
	Kinds: []errkind.Kind{
		{Code: CodeOutcomeUnknown, Name: "unsure", Target: ErrOutcomeUnknown},
		{Code: rpc.CodeOverloaded, Retryable: true, Target: ErrOverloaded, Form: overloadedForm},
		{Code: rpc.CodeUnavailable, Retryable: true, Target: ErrUnavailable},
		{Code: rpc.CodeUnauthenticated, Target: ErrUnauthenticated, Form: identityForm},
		{Code: rpc.CodePermissionDenied, Target: ErrPermission, Form: permissionForm},
		{Code: CodeTableNotFound, Name: "table_not_found", Target: ErrNoTable},
		{Code: CodeTableReplaced, Name: "table_replaced", Retryable: true, Target: ErrTableReplaced, Form: tableReplacedForm},
		{Code: CodeTableExists, Name: "table_exists", Target: ErrTableExists},
		{Code: CodeNotServing, Name: "not_serving", Retryable: true, Target: ErrNotServing, Form: notServingForm},
		{Code: CodeCorrupt, Name: "corrupt", Target: ErrCorrupt, Form: corruptForm},
		{Code: CodeDiskFull, Name: "disk_full", Target: ErrDiskFull},
		{Code: CodeCursorExpired, Name: "cursor_expired", Target: ErrCursorExpired},
		{Code: CodeConflict, Name: "conflict", Retryable: true, Target: ErrConflict},
		{Code: CodeNotANumber, Name: "not_a_number", Target: ErrNotNumber},
		{Code: CodeNotANumber, Name: "not_a_number", Target: table.ErrBadValue, Cause: "value"},
		{Code: CodeRowTooLarge, Name: "row_too_large", Target: ErrRowTooLarge, Form: rowTooLargeForm},
		{Code: CodeBadFilter, Name: "bad_filter", Target: table.ErrBadFilter, Form: filterForm},
		{Code: CodeFamilyNotFound, Name: "family_not_found", Target: table.ErrNoFamily, Form: familyForm},
		{Code: CodeGroupNotFound, Name: "group_not_found", Target: table.ErrNoGroup},
		{Code: CodeLimitExceeded, Name: "limit_exceeded", Target: table.ErrLimit, Form: limitForm},
		{Code: CodeBadName, Name: "bad_name", Target: table.ErrBadName, Form: nameForm},
		{Code: CodeBadTimestamp, Name: "bad_timestamp", Target: table.ErrBadTimestamp, Form: timestampForm},
		{Code: CodeBadRowKey, Name: "bad_row_key", Target: table.ErrBadRowKey},
		{Code: CodeBadMutation, Name: "bad_mutation", Target: table.ErrBadOp},
		{Code: CodeBadMutation, Name: "bad_mutation", Target: table.ErrNoMutations, Cause: "no_mutations"},
		{Code: CodeBadMutation, Name: "bad_mutation", Target: table.ErrNoRules, Cause: "no_rules"},
		{Code: CodeBadMutation, Name: "bad_mutation", Target: table.ErrAggregate, Cause: "aggregate"},
		{Code: CodeBadMutation, Name: "bad_mutation", Target: table.ErrBadOperand, Cause: "operand"},
		{Code: CodeBadMutation, Name: "bad_mutation", Target: table.ErrBadToken, Cause: "token"},
		{Code: CodeBadSchema, Name: "bad_schema", Target: table.ErrBadSchema},
		{Code: CodeBadSchema, Name: "bad_schema", Target: table.ErrBadGCPolicy, Cause: "gc_policy"},
		{Code: CodeBadSchema, Name: "bad_schema", Target: table.ErrBadSpec, Cause: "spec"},
		{Code: CodeBadSchema, Name: "bad_schema", Target: table.ErrFamilyExists, Cause: "family_exists"},
		{Code: CodeBadSchema, Name: "bad_schema", Target: table.ErrViewExists, Cause: "view_exists"},
		{Code: CodeBadSchema, Name: "bad_schema", Target: table.ErrViewChanged, Cause: "view_changed"},
		{Code: CodeBadSchema, Name: "bad_schema", Target: table.ErrReadOnlyChanged, Cause: "read_only_changed"},
		{Code: CodeNodeNotFound, Name: "node_not_found", Target: ErrNodeNotFound},
		{Code: CodeNodeInUse, Name: "node_in_use", Target: ErrNodeInUse, Form: nodeInUseForm},
		{Code: CodeStaleEpoch, Name: "stale_epoch", Target: ErrStaleEpoch},
		{Code: CodeBlobNotFound, Name: "blob_not_found", Target: ErrNoBlob},
		{Code: CodeBackupNotFound, Name: "backup_not_found", Target: ErrNoBackup},
		{Code: CodeBackupNotMade, Name: "backup_not_made", Target: ErrBackupNotMade},
		{Code: CodeTableProtected, Name: "table_protected", Target: table.ErrProtected},
		{Code: CodeTableReadOnly, Name: "table_read_only", Target: table.ErrReadOnly},
		{Code: CodeOutOfRange, Name: "out_of_range", Target: ErrOutOfRange},
		{Code: CodeNoChangeStream, Name: "no_change_stream", Target: ErrNoChangeStream},
		{Code: CodeRestoreTime, Name: "restore_time", Target: ErrRestoreTime, Form: restoreTimeForm},
		{Code: CodeFollower, Name: "follower", Target: ErrFollower, Form: followerForm},
		{Code: CodeNotFollower, Name: "not_follower", Target: ErrNotFollower},
		{Code: CodeReplicationNotFound, Name: "replication_not_found", Target: ErrNoReplication},
		{Code: CodeReplicationExists, Name: "replication_exists", Target: ErrReplicationExists},
		{Code: CodeViewNotFound, Name: "view_not_found", Target: table.ErrNoView, Form: viewForm},
		{Code: CodeClusterNotFound, Name: "cluster_not_found", Target: ErrNoCluster},
		{Code: CodeAppProfileNotFound, Name: "app_profile_not_found", Target: ErrNoAppProfile},
		{Code: CodeAppProfileExists, Name: "app_profile_exists", Target: ErrAppProfileExists},
		{Code: CodeAppProfileChanged, Name: "app_profile_changed", Target: ErrAppProfileChanged},
		{Code: CodeSchemaBundleNotFound, Name: "schema_bundle_not_found", Target: ErrNoSchemaBundle},
		{Code: CodeSchemaBundleExists, Name: "schema_bundle_exists", Target: ErrSchemaBundleExists},
		{Code: CodeSchemaBundleChanged, Name: "schema_bundle_changed", Target: ErrSchemaBundleChanged},
		{Code: CodeUploadExpired, Name: "upload_expired", Target: ErrUploadExpired},
		{Code: CodeBulkExpired, Name: "bulk_expired", Target: ErrBulkExpired},
		{Code: CodeBulkRefused, Name: "bulk_refused", Target: ErrBulkRefused},
		{Code: CodeBadMutation, Name: "bad_mutation", Target: ErrBulkOrder, Cause: "order"},
		{Code: CodeSystemTable, Name: "system_table", Target: ErrSystemTable},
		{Code: CodeTabletNotFound, Name: "tablet_not_found", Target: ErrNoTablet},
		{Code: CodeBadSplit, Name: "bad_split", Target: ErrBadSplit},
		{Code: CodeTabletBusy, Name: "tablet_busy", Retryable: true, Target: ErrTabletBusy},
		{Code: CodeNodeNotAlive, Name: "node_not_alive", Target: ErrNodeNotAlive},
		{Code: CodeTokenRefused, Name: "token_refused", Target: ErrTokenRefused, Form: tokenForm},
		{Code: CodeUserNotFound, Name: "user_not_found", Target: ErrNoUser},
		{Code: CodeGrantNotFound, Name: "grant_not_found", Target: ErrNoGrant},
		{Code: CodeGrantsChanged, Name: "grants_changed", Target: ErrGrantsChanged},
		{Code: CodeLastAdmin, Name: "last_admin", Target: ErrLastAdmin},
		{Code: CodeNoIssuer, Name: "no_issuer", Target: ErrNoIssuer},
		{Code: CodeOpenCluster, Name: "open_cluster", Target: ErrOpenCluster},
		{Code: CodeRollover, Name: "rollover_stage", Target: ErrRollover},
		{Code: CodeQuotaExceeded, Name: "quota_exceeded", Retryable: true, Target: ErrQuotaRate, Form: quotaForm(false)},
		{Code: CodeQuotaExceeded, Name: "quota_exceeded", Target: ErrQuotaBytes, Cause: "bytes", Form: quotaForm(true)},
		{Code: CodeQuotaNotFound, Name: "quota_not_found", Target: ErrNoQuota},
		{Code: rpc.CodeBadRequest, Target: table.ErrBadEncoding},
		{Code: rpc.CodeDeadlineExceeded, Target: context.DeadlineExceeded},
	},
	Also: []*errkind.Form{elementForm},
}

func init() { kinds.Register() }

// ToRPC returns the error that a node answers with for err. It has the code of the first kind that
// err matches, err's text as the message, and the fields of its typed errors as details. An
// *rpc.Error in the chain is returned unchanged. An err of no known kind becomes CodeInternal.
func ToRPC(err error) *rpc.Error { return kinds.ToRPC(err) }

// FromRPC wraps an *rpc.Error in err's chain in an error that also matches the Go error of its
// code, such as table.ErrNoFamily by errors.Is or a *table.LimitError by errors.As. It returns any
// other error unchanged.
func FromRPC(err error) error { return kinds.FromRPC(err) }

// NoLeader reports whether a node rejected a call because the lock service has no leader. Nothing was executed.
func NoLeader(err error) bool {
	var e *rpc.Error
	return errors.As(err, &e) && e.Code == rpc.CodeUnavailable && e.Details["voters"] != nil
}

// The forms of errors that have fields.
var (
	overloadedForm = errkind.FormOf(
		func(e *OverloadedError, d errkind.Details) { d["retry_after_ms"] = e.RetryAfter.Milliseconds() },
		func(a errkind.Answer) error {
			return &OverloadedError{a.Message, time.Duration(a.Int("retry_after_ms")) * time.Millisecond}
		})
	corruptForm = errkind.FormOf(
		func(e *CorruptError, d errkind.Details) { d["file"], d["offset"] = e.File, e.Offset },
		func(a errkind.Answer) error { return &CorruptError{File: a.Text("file"), Offset: a.Int("offset")} })
	notServingForm = errkind.FormOf(
		func(e *NotServingError, d errkind.Details) { d["addr"], d["node"] = e.Addr, e.Node },
		func(a errkind.Answer) error { return &NotServingError{Addr: a.Text("addr"), Node: a.Text("node")} })
	tableReplacedForm = errkind.FormOf(
		func(e *TableReplacedError, d errkind.Details) { d["table"], d["table_id"] = e.Table, e.ID },
		func(a errkind.Answer) error {
			return &TableReplacedError{Table: a.Text("table"), ID: uint64(a.Int("table_id"))}
		})
	rowTooLargeForm = errkind.FormOf(
		func(e *RowTooLargeError, d errkind.Details) { d["limit"] = e.Limit },
		func(a errkind.Answer) error { return &RowTooLargeError{a.Int("limit")} })
	nodeInUseForm = errkind.FormOf(
		func(e *NodeInUseError, d errkind.Details) { d["node"], d["reason"] = e.Node, e.Reason },
		func(a errkind.Answer) error { return &NodeInUseError{Node: a.Text("node"), Reason: a.Text("reason")} })
	tokenForm = errkind.FormOf(
		func(e *TokenRefusedError, d errkind.Details) { d["reason"], d["id"] = e.Reason, e.ID },
		func(a errkind.Answer) error {
			return &TokenRefusedError{Reason: a.Text("reason"), ID: a.Text("id"), Text: a.Message}
		})
	followerForm = errkind.FormOf(
		func(e *FollowerError, d errkind.Details) { d["table"], d["replication"] = e.Table, e.Replication },
		func(a errkind.Answer) error {
			return &FollowerError{Table: a.Text("table"), Replication: a.Text("replication")}
		})
	restoreTimeForm = errkind.FormOf(
		func(e *RestoreTimeError, d errkind.Details) { d["reason"], d["limit"] = e.Reason, e.Limit },
		func(a errkind.Answer) error {
			return &RestoreTimeError{Reason: a.Text("reason"), Limit: a.Int("limit"), Text: a.Message}
		})
	limitForm = errkind.FormOf(
		func(e *table.LimitError, d errkind.Details) { d["what"], d["limit"], d["got"] = e.What, e.Limit, e.Got },
		func(a errkind.Answer) error { return limitOf(a) })
	// A filter over a limit has the fields of both errors.
	filterForm = errkind.FormOf(
		func(e *table.FilterError, d errkind.Details) { d["path"], d["reason"] = e.Path, e.Reason },
		func(a errkind.Answer) error {
			e := &table.FilterError{Path: a.Text("path"), Reason: a.Text("reason")}
			if a.HasInt("limit") {
				e.Err = limitOf(a)
			}
			return e
		})
	familyForm = errkind.FormOf(
		func(e *table.NoFamilyError, d errkind.Details) { d["table"], d["family"] = e.Table, e.Family },
		func(a errkind.Answer) error {
			return &table.NoFamilyError{Table: a.Text("table"), Family: a.Text("family")}
		})
	viewForm = errkind.FormOf(
		func(e *table.NoViewError, d errkind.Details) { d["table"], d["view"] = e.Table, e.View },
		func(a errkind.Answer) error { return &table.NoViewError{Table: a.Text("table"), View: a.Text("view")} })
	nameForm = errkind.FormOf(
		func(e *table.NameError, d errkind.Details) {
			d["what"], d["value"], d["reason"] = e.What, e.Name, e.Reason
		},
		func(a errkind.Answer) error {
			return &table.NameError{What: a.Text("what"), Name: a.Text("value"), Reason: a.Text("reason")}
		})
	timestampForm = errkind.FormOf(
		func(e *table.TimestampError, d errkind.Details) { d["what"], d["got"] = e.What, e.Got },
		func(a errkind.Answer) error { return &table.TimestampError{What: a.Text("what"), Got: a.Int("got")} })
	elementForm = errkind.FormOf(
		func(e *table.ElementError, d errkind.Details) { d["element"], d["index"] = e.What, e.Index }, nil)
)

func limitOf(a errkind.Answer) *table.LimitError {
	return &table.LimitError{What: a.Text("what"), Limit: a.Int("limit"), Got: a.Int("got")}
}
