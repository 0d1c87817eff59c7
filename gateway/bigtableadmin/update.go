package bigtableadmin

import (
	"context"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// UpdateTable implements adminpb.BigtableTableAdminServer. The operation that it returns is done.
func (s *Service) UpdateTable(ctx context.Context, req *adminpb.UpdateTableRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.Now()
	t, name, err := s.openTable(ctx, req.GetTable().GetName())
	if err != nil {
		return nil, err
	}
	changes, err := s.updates(req.Table, req.GetUpdateMask().GetPaths())
	if err != nil {
		return nil, err
	}
	var schema *table.Schema
	if len(changes) == 0 {
		schema, err = schemaOf(ctx, t, name)
	} else {
		schema, err = t.Alter(ctx, name.ID, changes...)
	}
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return done(name.String(), describe(name, schema, adminpb.Table_SCHEMA_VIEW),
		&adminpb.UpdateTableMetadata{Name: name.String(), StartTime: began, EndTime: timestamppb.Now()})
}

// updates returns the changes of a schema for the fields of t in a mask. Errors are statuses.
func (s *Service) updates(t *adminpb.Table, paths []string) (changes []table.Change, err error) {
	if len(paths) == 0 {
		return nil, errcode.Invalid("update_mask must not be empty")
	}
	masked := &adminpb.Table{}
	for _, path := range paths {
		switch path {
		case "deletion_protection":
			changes = append(changes, table.Change{Op: table.ChangeProtect, Protect: t.DeletionProtection})
		case "change_stream_config", "change_stream_config.retention_period":
			retention, err := retentionOf(t.ChangeStreamConfig)
			if err == nil {
				err = s.checkRetention(retention)
			}
			if err != nil {
				return nil, err
			}
			changes = append(changes, table.Change{Op: table.ChangeStream, Retention: retention})
		// None of these can be set, so that there is none to remove.
		case "automated_backup_policy":
			masked.AutomatedBackupConfig = t.AutomatedBackupConfig
		case "row_key_schema":
			masked.RowKeySchema = t.RowKeySchema
		case "tiered_storage_config":
			masked.TieredStorageConfig = t.TieredStorageConfig
		case "column_families":
			return nil, errcode.Unimplemented("Column families cannot be updated by UpdateTable: use ModifyColumnFamilies.")
		default:
			return nil, errcode.Invalid("update_mask has %.200q, which cannot be updated", path)
		}
	}
	return changes, checkOptions(masked)
}

// done returns an operation on a resource that has succeeded.
func done(resource string, answer, about proto.Message) (*longrunningpb.Operation, error) {
	response, err := anypb.New(answer)
	if err != nil {
		return nil, err
	}
	metadata, err := anypb.New(about)
	return &longrunningpb.Operation{Name: "operations/" + resource + "/operations/done", Done: true, Metadata: metadata,
		Result: &longrunningpb.Operation_Response{Response: response}}, err
}
