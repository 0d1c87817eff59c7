package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// AppProfile describes a program that uses the cluster through Cloud Bigtable's API, and how its requests are routed.
type AppProfile = api.AppProfile

// AppProfiles administers the app profiles of the cluster. All users may list them; the other methods require the right to administer the cluster.
// Other nodes than the one that made a change apply it to requests within seconds.
type AppProfiles struct{ calls *caller }

// AppProfiles returns the administration of app profiles.
func (c *Client) AppProfiles() AppProfiles { return AppProfiles{&c.calls} }

// List returns all profiles by id. Errors: those of a node that cannot be reached; ctx's.
func (a AppProfiles) List(ctx context.Context) ([]AppProfile, error) {
	var all api.AppProfiles
	err := a.calls.query(ctx, api.MethodListAppProfiles, nil, all.Decode)
	return all.Profiles, err
}

// Create creates a profile, and returns it with its etag. Errors: api.ErrAppProfileExists, ErrBadName, *table.LimitError, a bad request, ErrPermission,
// *AmbiguousError, and those of List.
func (a AppProfiles) Create(ctx context.Context, p *AppProfile) (*AppProfile, error) {
	return a.save(ctx, api.MethodCreateAppProfile, p)
}

// Update replaces all fields of a profile, if it has the etag of p, unless that is empty. Errors: api.ErrNoAppProfile, api.ErrAppProfileChanged, and those
// of Create.
func (a AppProfiles) Update(ctx context.Context, p *AppProfile) (*AppProfile, error) {
	return a.save(ctx, api.MethodUpdateAppProfile, p)
}

func (a AppProfiles) save(ctx context.Context, method string, p *AppProfile) (*AppProfile, error) {
	saved, req := &AppProfile{}, api.AppProfileRequest{Profile: *p}
	err := a.calls.do(ctx, &call{method: method, change: true, encode: req.Append, decode: saved.Decode})
	if err != nil {
		return nil, err
	}
	return saved, nil
}

// Delete deletes a profile. Requests that name it fail then. Errors: api.ErrNoAppProfile, a bad request for the default one, ErrPermission,
// *AmbiguousError, and those of List.
func (a AppProfiles) Delete(ctx context.Context, id string) error {
	req := api.NamesRequest{Names: []string{id}}
	return a.calls.do(ctx, &call{method: api.MethodDeleteAppProfile, change: true, encode: req.Append})
}

// SchemaBundle has descriptors of protocol buffers that the values of a table's cells have. They have no effect on reads and writes.
type SchemaBundle = api.SchemaBundle

// SchemaBundles administers the schema bundles of a table. Users that may see the table may list them; the other methods require the right to administer it.
type SchemaBundles struct {
	calls *caller
	table string
}

// SchemaBundles returns the administration of a table's schema bundles.
func (t Tables) SchemaBundles(table string) SchemaBundles { return SchemaBundles{t.calls, table} }

// List returns all bundles by id. Errors: api.ErrNoTable, api.ErrSystemTable, those of a node that cannot be reached; ctx's.
func (s SchemaBundles) List(ctx context.Context) ([]SchemaBundle, error) {
	var all api.SchemaBundles
	err := s.calls.query(ctx, api.MethodListSchemaBundles, []string{s.table}, all.Decode)
	return all.Bundles, err
}

// Create creates a bundle, and returns it with its etag. Errors: api.ErrSchemaBundleExists, ErrBadName, *table.LimitError, a bad request for descriptors that
// are none, ErrPermission, *AmbiguousError, and those of List.
func (s SchemaBundles) Create(ctx context.Context, b *SchemaBundle) (*SchemaBundle, error) {
	return s.save(ctx, api.MethodCreateSchemaBundle, b)
}

// Update replaces the descriptors of a bundle, if it has the etag of b, unless that is empty. Errors: api.ErrNoSchemaBundle, api.ErrSchemaBundleChanged, and
// those of Create.
func (s SchemaBundles) Update(ctx context.Context, b *SchemaBundle) (*SchemaBundle, error) {
	return s.save(ctx, api.MethodUpdateSchemaBundle, b)
}

func (s SchemaBundles) save(ctx context.Context, method string, b *SchemaBundle) (*SchemaBundle, error) {
	saved := &SchemaBundle{}
	if err := s.change(ctx, method, b, saved.Decode); err != nil {
		return nil, err
	}
	return saved, nil
}

// Delete deletes a bundle, if it has the etag, unless that is empty. Errors: api.ErrNoSchemaBundle, api.ErrSchemaBundleChanged, ErrBadName, ErrPermission,
// *AmbiguousError, and those of List.
func (s SchemaBundles) Delete(ctx context.Context, id, etag string) error {
	return s.change(ctx, api.MethodDeleteSchemaBundle, &SchemaBundle{ID: id, Etag: etag}, nil)
}

func (s SchemaBundles) change(ctx context.Context, method string, b *SchemaBundle, decode func(*wire.Decoder) error) error {
	req := api.SchemaBundleRequest{Table: s.table, SchemaBundle: *b}
	return s.calls.do(ctx, &call{method: method, change: true, encode: req.Encoder(method), decode: decode})
}
