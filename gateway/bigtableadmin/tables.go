package bigtableadmin

import (
	"context"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
	"github.com/steledb/stele/table"
)

// open returns the administration of tables for the caller. Its errors are statuses.
func (s *Service) open(ctx context.Context) (Tables, error) {
	t, _, err := s.cfg.Open(ctx)
	return t, errcode.Convert(err, errcode.Repeatable)
}

// openTable is open for a request about one table.
func (s *Service) openTable(ctx context.Context, name string) (Tables, names.Table, error) {
	n, err := names.ParseTable(name)
	if err != nil {
		return nil, n, errcode.Convert(err, errcode.Repeatable)
	}
	t, err := s.open(ctx)
	return t, n, err
}

// CreateTable implements adminpb.BigtableTableAdminServer.
func (s *Service) CreateTable(ctx context.Context, req *adminpb.CreateTableRequest) (*adminpb.Table, error) {
	in, err := names.ParseInstance(req.Parent)
	if err == nil {
		err = names.Limits{Strict: s.cfg.StrictLimits}.CheckTableID(req.TableId)
	}
	if err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	for name, f := range req.GetTable().GetColumnFamilies() {
		if err := s.checkFamily(name, f); err != nil {
			return nil, err
		}
	}
	spec, err := newTable(req.Table)
	if err == nil {
		err = s.checkRetention(spec.ChangeRetention)
	}
	if err != nil {
		return nil, err
	}
	for _, split := range req.InitialSplits {
		if len(split.GetKey()) == 0 {
			return nil, errcode.Convert(table.ErrBadRowKey, errcode.Once)
		}
		spec.SplitAt = append(spec.SplitAt, string(split.Key))
	}
	t, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	schema, err := t.CreateFrom(ctx, req.TableId, spec)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return describe(in.Table(req.TableId), schema, adminpb.Table_SCHEMA_VIEW), nil
}

// newTable returns the specification of a table to create, with families sorted by name. Errors are
// statuses.
func newTable(t *adminpb.Table) (spec *client.TableSpec, err error) {
	if err := checkOptions(t); err != nil {
		return nil, err
	}
	spec = &client.TableSpec{Protected: t.GetDeletionProtection()}
	if spec.ChangeRetention, err = retentionOf(t.GetChangeStreamConfig()); err != nil {
		return nil, err
	}
	if spec.Granularity, err = granularityOf(t.GetGranularity()); err != nil {
		return nil, err
	}
	for name, f := range t.GetColumnFamilies() {
		family, err := specOf(name, f)
		if err != nil {
			return nil, err
		}
		spec.Families = append(spec.Families, family)
	}
	slices.SortFunc(spec.Families, func(a, b table.FamilySpec) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return spec, nil
}

// retentionOf converts the configuration of a change stream; a missing one is 0. The error is a status.
func retentionOf(c *adminpb.ChangeStreamConfig) (time.Duration, error) {
	if c == nil {
		return 0, nil
	}
	d := c.GetRetentionPeriod()
	if !d.IsValid() || d.AsDuration() < table.ChangeRetentionMin || d.AsDuration() > table.ChangeRetentionMax {
		return 0, errcode.Invalid("change_stream_config.retention_period must be from %v to %v", table.ChangeRetentionMin, table.ChangeRetentionMax)
	}
	return d.AsDuration(), nil
}

// granularityOf converts the granularity of a table to create. Google's default is MILLIS.
func granularityOf(g adminpb.Table_TimestampGranularity) (table.Granularity, error) {
	switch g {
	case adminpb.Table_TIMESTAMP_GRANULARITY_UNSPECIFIED, adminpb.Table_MILLIS:
		return table.GranularityMillis, nil
	case adminpb.Table_MICROS:
		return table.GranularityMicros, nil
	}
	return 0, errcode.Invalid("unknown timestamp granularity %v", g)
}

// checkOptions rejects what a schema cannot store.
func checkOptions(t *adminpb.Table) error {
	switch {
	case t.GetAutomatedBackupConfig() != nil:
		return errcode.Unimplemented("Backups are not supported.")
	case t.GetTieredStorageConfig() != nil:
		return errcode.Unimplemented("Tiered storage is not supported.")
	case t.GetRowKeySchema() != nil:
		return errcode.Unimplemented("Row key schemas are not supported.")
	}
	return nil
}

// ListTables implements adminpb.BigtableTableAdminServer. A page token is the id of the last table of
// the page before.
func (s *Service) ListTables(ctx context.Context, req *adminpb.ListTablesRequest) (*adminpb.ListTablesResponse, error) {
	in, err := names.ParseInstance(req.Parent)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	if req.PageSize < 0 {
		return nil, errcode.Invalid("page_size must not be negative")
	}
	t, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	schemas, err := t.List(ctx)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	view := req.View
	if view == adminpb.Table_VIEW_UNSPECIFIED {
		view = adminpb.Table_NAME_ONLY
	}
	answer := &adminpb.ListTablesResponse{}
	for _, schema := range schemas {
		if schema.Name == metadata.Name || req.PageToken != "" && schema.Name <= req.PageToken {
			continue
		}
		if n := len(answer.Tables); req.PageSize > 0 && n == int(req.PageSize) {
			last, _ := names.ParseTable(answer.Tables[n-1].Name)
			answer.NextPageToken = last.ID
			break
		}
		answer.Tables = append(answer.Tables, describe(in.Table(schema.Name), schema, view))
	}
	return answer, nil
}

// GetTable implements adminpb.BigtableTableAdminServer.
func (s *Service) GetTable(ctx context.Context, req *adminpb.GetTableRequest) (*adminpb.Table, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	schema, err := schemaOf(ctx, t, name)
	if err != nil {
		return nil, err
	}
	view := req.View
	if view == adminpb.Table_VIEW_UNSPECIFIED {
		view = adminpb.Table_SCHEMA_VIEW
	}
	return describe(name, schema, view), nil
}

// schemaOf returns the schema of a table. Its errors are statuses.
func schemaOf(ctx context.Context, t Tables, name names.Table) (*table.Schema, error) {
	if name.ID == metadata.Name {
		return nil, errcode.Convert(client.ErrNoTable, errcode.Repeatable)
	}
	info, err := t.Describe(ctx, name.ID)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return info.Schema, nil
}

// describe returns a view of a table.
func describe(name names.Table, schema *table.Schema, view adminpb.Table_View) *adminpb.Table {
	t := &adminpb.Table{Name: name.String(), DeletionProtection: schema.Protected && view != adminpb.Table_NAME_ONLY}
	if view == adminpb.Table_SCHEMA_VIEW || view == adminpb.Table_FULL {
		t.Granularity = adminpb.Table_MICROS
		if schema.Granularity == table.GranularityMillis {
			t.Granularity = adminpb.Table_MILLIS
		}
		if schema.ChangeRetention > 0 {
			t.ChangeStreamConfig = &adminpb.ChangeStreamConfig{RetentionPeriod: durationpb.New(schema.ChangeRetention)}
		}
		t.ColumnFamilies = map[string]*adminpb.ColumnFamily{}
		for i := range schema.Families {
			f := &schema.Families[i]
			t.ColumnFamilies[f.Name] = &adminpb.ColumnFamily{GcRule: ruleOf(&f.GC), ValueType: valueTypeOf(f.Aggregate)}
		}
	}
	if view == adminpb.Table_REPLICATION_VIEW || view == adminpb.Table_ENCRYPTION_VIEW || view == adminpb.Table_FULL {
		state := &adminpb.Table_ClusterState{}
		if view != adminpb.Table_ENCRYPTION_VIEW {
			state.ReplicationState = adminpb.Table_ClusterState_READY
		}
		if view != adminpb.Table_REPLICATION_VIEW {
			state.EncryptionInfo = []*adminpb.EncryptionInfo{{EncryptionType: adminpb.EncryptionInfo_GOOGLE_DEFAULT_ENCRYPTION}}
		}
		t.ClusterStates = map[string]*adminpb.Table_ClusterState{clusterID: state}
	}
	return t
}

// DeleteTable implements adminpb.BigtableTableAdminServer.
func (s *Service) DeleteTable(ctx context.Context, req *adminpb.DeleteTableRequest) (*emptypb.Empty, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	if err := t.Drop(ctx, name.ID); err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return &emptypb.Empty{}, nil
}

// UndeleteTable implements adminpb.BigtableTableAdminServer. The operation that it returns is done.
func (s *Service) UndeleteTable(ctx context.Context, req *adminpb.UndeleteTableRequest) (*longrunningpb.Operation, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	schema, err := t.Undrop(ctx, client.DroppedRef{Name: name.ID}, "")
	if err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	restored, err := anypb.New(describe(name, schema, adminpb.Table_SCHEMA_VIEW))
	if err != nil {
		return nil, err
	}
	now := timestamppb.Now()
	about, err := anypb.New(&adminpb.UndeleteTableMetadata{Name: name.String(), StartTime: now, EndTime: now})
	if err != nil {
		return nil, err
	}
	return &longrunningpb.Operation{Name: "operations/" + name.String() + "/undelete", Metadata: about, Done: true,
		Result: &longrunningpb.Operation_Response{Response: restored}}, nil
}

// DropRowRange implements adminpb.BigtableTableAdminServer.
func (s *Service) DropRowRange(ctx context.Context, req *adminpb.DropRowRangeRequest) (*emptypb.Empty, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	if _, err := schemaOf(ctx, t, name); err != nil {
		return nil, err
	}
	switch {
	case req.GetDeleteAllDataFromTable():
		err = t.ClearRows(ctx, name.ID, "", "")
	case len(req.GetRowKeyPrefix()) == 0:
		return nil, errcode.Invalid("missing row key prefix")
	default:
		err = t.ClearPrefix(ctx, name.ID, string(req.GetRowKeyPrefix()))
	}
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return &emptypb.Empty{}, nil
}

// consistencyToken is the only token: a cluster is consistent with itself.
const consistencyToken = "stele"

// GenerateConsistencyToken implements adminpb.BigtableTableAdminServer.
func (s *Service) GenerateConsistencyToken(ctx context.Context, req *adminpb.GenerateConsistencyTokenRequest) (*adminpb.GenerateConsistencyTokenResponse, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	if _, err := schemaOf(ctx, t, name); err != nil {
		return nil, err
	}
	return &adminpb.GenerateConsistencyTokenResponse{ConsistencyToken: consistencyToken}, nil
}

// CheckConsistency implements adminpb.BigtableTableAdminServer.
func (s *Service) CheckConsistency(ctx context.Context, req *adminpb.CheckConsistencyRequest) (*adminpb.CheckConsistencyResponse, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	if _, err := schemaOf(ctx, t, name); err != nil {
		return nil, err
	}
	if req.ConsistencyToken != consistencyToken {
		return nil, errcode.Invalid("token %.200q not valid", req.ConsistencyToken)
	}
	return &adminpb.CheckConsistencyResponse{Consistent: true}, nil
}
