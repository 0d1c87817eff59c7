package bigtableadmin

import (
	"context"
	"slices"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
	"github.com/steledb/stele/internal/protoschema"
)

// Bundles administers the schema bundles of a table. client.SchemaBundles implements it; see there for the errors.
type Bundles interface {
	List(ctx context.Context) ([]client.SchemaBundle, error)
	Create(ctx context.Context, b *client.SchemaBundle) (*client.SchemaBundle, error)
	Update(ctx context.Context, b *client.SchemaBundle) (*client.SchemaBundle, error)
	Delete(ctx context.Context, id, etag string) error
}

var _ Bundles = client.SchemaBundles{}

var errAvro = errcode.Unimplemented("Schema bundles of Avro schemas are not supported: use proto_schema.")

// openBundle returns the administration of a table's bundles for a request that names one. Errors are statuses.
func (s *Service) openBundle(ctx context.Context, name string) (Bundles, names.SchemaBundle, error) {
	b, err := names.ParseSchemaBundle(name)
	if err != nil {
		return nil, b, errcode.Convert(err, errcode.Repeatable)
	}
	all, err := s.cfg.OpenBundles(ctx, b.Table.ID)
	return all, b, errcode.Convert(err, errcode.Repeatable)
}

// openBundles returns the administration of the bundles of the table that a request names. Errors are statuses.
func (s *Service) openBundles(ctx context.Context, parent string) (Bundles, names.Table, error) {
	of, err := names.ParseTable(parent)
	if err != nil {
		return nil, of, errcode.Convert(err, errcode.Repeatable)
	}
	all, err := s.cfg.OpenBundles(ctx, of.ID)
	return all, of, errcode.Convert(err, errcode.Repeatable)
}

// bundleOf returns a bundle. Errors are statuses.
func bundleOf(ctx context.Context, from Bundles, id string) (*client.SchemaBundle, error) {
	all, err := from.List(ctx)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	i := slices.IndexFunc(all, func(b client.SchemaBundle) bool { return b.ID == id })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "Schema bundle %.80q not found.", id)
	}
	return &all[i], nil
}

// descriptorsOf returns the descriptors of a bundle in a request. The error is a status.
func descriptorsOf(b *adminpb.SchemaBundle) ([]byte, error) {
	switch {
	case b.GetAvroSchema() != nil:
		return nil, errAvro
	case b.GetProtoSchema() == nil:
		return nil, errcode.Invalid("schema_bundle.proto_schema must be set")
	}
	descriptors := b.GetProtoSchema().ProtoDescriptors
	if n := len(descriptors); n > api.SchemaBundleBytesMax {
		return nil, errcode.Invalid("schema_bundle.proto_schema.proto_descriptors has %d bytes, want at most %d", n, api.SchemaBundleBytesMax)
	}
	return descriptors, nil
}

func describeBundle(name names.SchemaBundle, b *client.SchemaBundle) *adminpb.SchemaBundle {
	return &adminpb.SchemaBundle{Name: name.String(), Etag: b.Etag, Type: &adminpb.SchemaBundle_ProtoSchema{ProtoSchema: &adminpb.ProtoSchema{ProtoDescriptors: b.Descriptors}}}
}

// CreateSchemaBundle implements adminpb.BigtableTableAdminServer. The operation that it returns is done.
func (s *Service) CreateSchemaBundle(ctx context.Context, req *adminpb.CreateSchemaBundleRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.Now()
	to, of, err := s.openBundles(ctx, req.Parent)
	if err != nil {
		return nil, err
	}
	if err := (names.Limits{Strict: s.cfg.StrictLimits}).CheckSchemaBundleID(req.SchemaBundleId); err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	descriptors, err := descriptorsOf(req.SchemaBundle)
	if err != nil {
		return nil, err
	}
	made, err := to.Create(ctx, &client.SchemaBundle{ID: req.SchemaBundleId, Descriptors: descriptors})
	if err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	name := of.SchemaBundle(made.ID)
	return done(name.String(), describeBundle(name, made), &adminpb.CreateSchemaBundleMetadata{Name: name.String(), StartTime: began, EndTime: timestamppb.Now()})
}

// UpdateSchemaBundle implements adminpb.BigtableTableAdminServer. The operation that it returns is done. An update after which programs with the former
// descriptors may not read values that are written by the new ones, or vice versa, needs ignore_warnings.
func (s *Service) UpdateSchemaBundle(ctx context.Context, req *adminpb.UpdateSchemaBundleRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.Now()
	to, name, err := s.openBundle(ctx, req.GetSchemaBundle().GetName())
	if err != nil {
		return nil, err
	}
	for _, path := range req.GetUpdateMask().GetPaths() {
		if path != "proto_schema" && path != "proto_schema.proto_descriptors" && path != "*" {
			return nil, errcode.Invalid("update_mask has %.200q, which cannot be updated: want proto_schema or *", path)
		}
	}
	descriptors, err := descriptorsOf(req.SchemaBundle)
	if err != nil {
		return nil, err
	}
	old, err := bundleOf(ctx, to, name.ID)
	if err != nil {
		return nil, err
	}
	etag := req.SchemaBundle.Etag
	if etag == "" {
		etag = old.Etag // of the descriptors that are compared
	}
	if etag == old.Etag && !req.IgnoreWarnings {
		if err := checkCompatible(old.Descriptors, descriptors); err != nil {
			return nil, err
		}
	}
	made, err := to.Update(ctx, &client.SchemaBundle{ID: name.ID, Descriptors: descriptors, Etag: etag})
	if err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return done(name.String(), describeBundle(name, made), &adminpb.UpdateSchemaBundleMetadata{Name: name.String(), StartTime: began, EndTime: timestamppb.Now()})
}

// checkCompatible checks that an update is one that clients may have meant. The error is a status.
func checkCompatible(old, changed []byte) error {
	was, err := protoschema.Parse(old)
	if err != nil {
		return nil // of an earlier version of the program, perhaps: any valid update is better
	}
	now, err := protoschema.Parse(changed)
	if err != nil {
		return errcode.Invalid("schema_bundle.proto_schema.proto_descriptors: %.300v", err)
	}
	if what := protoschema.Incompatible(was, now); what != "" {
		return status.Errorf(codes.FailedPrecondition, "The new schema is not compatible with the present one: %s. Set ignore_warnings to update it nevertheless.", what)
	}
	return nil
}

// GetSchemaBundle implements adminpb.BigtableTableAdminServer.
func (s *Service) GetSchemaBundle(ctx context.Context, req *adminpb.GetSchemaBundleRequest) (*adminpb.SchemaBundle, error) {
	from, name, err := s.openBundle(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	b, err := bundleOf(ctx, from, name.ID)
	if err != nil {
		return nil, err
	}
	return describeBundle(name, b), nil
}

// ListSchemaBundles implements adminpb.BigtableTableAdminServer. The bundles of a table are one page, unless the request has page_size: a page token is
// then the id of the last bundle of the page before.
func (s *Service) ListSchemaBundles(ctx context.Context, req *adminpb.ListSchemaBundlesRequest) (*adminpb.ListSchemaBundlesResponse, error) {
	if req.PageSize < 0 {
		return nil, errcode.Invalid("page_size must not be negative")
	}
	from, of, err := s.openBundles(ctx, req.Parent)
	if err != nil {
		return nil, err
	}
	all, err := from.List(ctx)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	answer := &adminpb.ListSchemaBundlesResponse{}
	size := int(req.PageSize)
	if size == 0 {
		size = api.SchemaBundlesMax
	}
	for i := range all {
		if all[i].ID <= req.PageToken {
			continue
		}
		if len(answer.SchemaBundles) == size {
			answer.NextPageToken = all[i-1].ID
			break
		}
		answer.SchemaBundles = append(answer.SchemaBundles, describeBundle(of.SchemaBundle(all[i].ID), &all[i]))
	}
	return answer, nil
}

// DeleteSchemaBundle implements adminpb.BigtableTableAdminServer.
func (s *Service) DeleteSchemaBundle(ctx context.Context, req *adminpb.DeleteSchemaBundleRequest) (*emptypb.Empty, error) {
	to, name, err := s.openBundle(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	if err := to.Delete(ctx, name.ID, req.Etag); err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return &emptypb.Empty{}, nil
}
