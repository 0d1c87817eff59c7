package schemabundles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/protoschema"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// Config is what the service needs.
type Config struct {
	Log     *slog.Logger
	Limits  *table.Limits
	Catalog *namespace.Catalog
	Changes *changes.Changes
}

// Service keeps the schema bundles of tables.
type Service struct{ Config }

// New creates a service.
func New(cfg Config) *Service { return &Service{cfg} }

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	guard := authz.Guard{To: authz.RightOfTable, Right: acl.Admin, Master: true, Leader: authz.LeaderFirst}
	for name, change := range map[string]change{
		api.MethodCreateSchemaBundle: create, api.MethodUpdateSchemaBundle: update, api.MethodDeleteSchemaBundle: remove,
	} {
		r.Handle(name, rpc.Spawned, guard, func(c *rpc.Call) { s.serve(c, name, change) })
	}
	r.HandleNames(api.MethodListSchemaBundles, 1, authz.Guard{To: authz.OfTable, Leader: authz.LeaderThroughout}, s.list)
}

// list returns the bundles of a table.
func (s *Service) list(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	all, _, _, err := s.read(ctx, r.Names[0])
	if err != nil {
		return nil, err
	}
	return (&api.SchemaBundles{Bundles: all}).Append, nil
}

// read returns the bundles of a table, the path of their file, and its generation. Errors: api.ErrNoTable, api.ErrSystemTable, those of the lock service.
func (s *Service) read(ctx context.Context, tableName string) ([]api.SchemaBundle, string, uint64, error) {
	if metadata.IsSystem(tableName) {
		return nil, "", 0, api.ErrSystemTable
	}
	schema, _, err := s.Catalog.Schema(ctx, tableName)
	if err != nil {
		return nil, "", 0, err
	}
	file := File(schema.ID)
	f, err := s.Catalog.Meta.Get(ctx, file)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, file, 0, nil
	}
	if err != nil {
		return nil, file, 0, err
	}
	all, err := decode(f.Data)
	if err != nil {
		return nil, file, 0, fmt.Errorf("%s: %w", file, err)
	}
	return all, file, f.Generation, nil
}

// A change makes a change of a table's bundles, of which i is the position of the requested one, if it is there.
type change func(all []api.SchemaBundle, r *api.SchemaBundleRequest, i int, exists bool) ([]api.SchemaBundle, error)

// serve serves a method that changes the bundles of a table.
func (s *Service) serve(c *rpc.Call, method string, change change) {
	c.Retain() // the change may outlive the call
	var r api.SchemaBundleRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, method), &r.Options) {
		return
	}
	err := s.Limits.CheckName("schema bundle id", r.ID)
	if err == nil && method != api.MethodDeleteSchemaBundle {
		err = checkDescriptors(r.Descriptors)
	}
	if err == nil {
		of := authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: method, Name: r.Table}
		err = s.Changes.Do(c.Context(), of, func(ctx context.Context) error { return s.change(ctx, &r, change) })
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	s.Log.Info("schema bundles of table changed", "table", r.Table, "schema_bundle", r.ID, "method", method)
	if method == api.MethodDeleteSchemaBundle {
		c.Reply(nil)
		return
	}
	saved := api.SchemaBundle{ID: r.ID, Descriptors: r.Descriptors, Etag: etag(r.Descriptors)}
	c.Reply(saved.Append)
}

// checkDescriptors checks that descriptors are those of files, with all that they import (SB2).
func checkDescriptors(descriptors []byte) error {
	if _, err := protoschema.Parse(descriptors); err != nil {
		return rpc.Errorf(rpc.CodeBadRequest, "descriptors are no google.protobuf.FileDescriptorSet with all imported files (protoc --include_imports --descriptor_set_out): %.300v", err)
	}
	return nil
}

// change changes the bundles of a table, within a change.
func (s *Service) change(ctx context.Context, r *api.SchemaBundleRequest, change change) error {
	all, file, generation, err := s.read(ctx, r.Table)
	if err != nil {
		return err
	}
	i, exists := slices.BinarySearchFunc(all, r.ID, func(b api.SchemaBundle, id string) int { return strings.Compare(b.ID, id) })
	if exists && r.Etag != "" && r.Etag != all[i].Etag { // SB1
		return fmt.Errorf("schema bundle %q has the etag %s, not %s: %w", r.ID, all[i].Etag, r.Etag, api.ErrSchemaBundleChanged)
	}
	if all, err = change(all, r, i, exists); err != nil {
		return err
	}
	if len(all) == 0 {
		return s.Catalog.Remove(ctx, file, generation)
	}
	_, err = s.Catalog.Set(ctx, file, encode(all), generation)
	return err
}

func create(all []api.SchemaBundle, r *api.SchemaBundleRequest, i int, exists bool) ([]api.SchemaBundle, error) {
	if exists {
		return nil, fmt.Errorf("schema bundle %q: %w", r.ID, api.ErrSchemaBundleExists)
	}
	if n := int64(len(all)); n >= api.SchemaBundlesMax {
		return nil, &table.LimitError{What: "schema bundles of a table", Limit: api.SchemaBundlesMax, Got: n + 1}
	}
	return checkSize(slices.Insert(all, i, api.SchemaBundle{ID: r.ID, Descriptors: r.Descriptors}))
}

func update(all []api.SchemaBundle, r *api.SchemaBundleRequest, i int, exists bool) ([]api.SchemaBundle, error) {
	if !exists {
		return nil, noBundle(r.ID)
	}
	all[i].Descriptors = r.Descriptors
	return checkSize(all)
}

func remove(all []api.SchemaBundle, r *api.SchemaBundleRequest, i int, exists bool) ([]api.SchemaBundle, error) {
	if !exists {
		return nil, noBundle(r.ID)
	}
	return slices.Delete(all, i, i+1), nil
}

func noBundle(id string) error { return fmt.Errorf("schema bundle %q: %w", id, api.ErrNoSchemaBundle) }

// checkSize checks that the bundles of a table fit in its file.
func checkSize(all []api.SchemaBundle) ([]api.SchemaBundle, error) {
	var n int64
	for i := range all {
		n += int64(len(all[i].Descriptors))
	}
	if n > api.SchemaBundleBytesMax {
		return nil, &table.LimitError{What: "bytes of the schema bundles of a table", Limit: api.SchemaBundleBytesMax, Got: n}
	}
	return all, nil
}
