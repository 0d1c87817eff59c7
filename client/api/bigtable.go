package api

import (
	"errors"
	"slices"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

var (
	// ErrNoAppProfile means that there is no app profile with that id.
	ErrNoAppProfile = errors.New("no such app profile")
	// ErrAppProfileExists means that there is an app profile with that id.
	ErrAppProfileExists = errors.New("app profile exists")
	// ErrAppProfileChanged means that an app profile has another etag than the request.
	ErrAppProfileChanged = errors.New("app profile has changed")

	// ErrNoSchemaBundle means that a table has no schema bundle with that id.
	ErrNoSchemaBundle = errors.New("no such schema bundle")
	// ErrSchemaBundleExists means that a table has a schema bundle with that id.
	ErrSchemaBundleExists = errors.New("schema bundle exists")
	// ErrSchemaBundleChanged means that a schema bundle has another etag than the request.
	ErrSchemaBundleChanged = errors.New("schema bundle has changed")
)

// DefaultAppProfile is the id of the app profile of requests that name none. It always exists.
const DefaultAppProfile = "default"

// Bounds of app profiles.
const (
	AppProfilesMax             = 100 // besides the default one
	AppProfileDescriptionBytes = 1024
)

// Bounds of the schema bundles of a table. They are in one file of the lock service.
const (
	SchemaBundlesMax     = 10
	SchemaBundleBytesMax = 192 << 10 // of all descriptors
)

const etagBytesMax = 64

// Values of AppProfile.Routing.
const (
	RoutingSingle = "single"  // to one cluster
	RoutingAny    = "any"     // to any cluster
	RoutingByRow  = "any_row" // to any cluster, the same one for each row
)

// Values of AppProfile.Priority.
const (
	PriorityLow    = "low"
	PriorityMedium = "medium"
	PriorityHigh   = "high"
)

var (
	routings   = []string{RoutingSingle, RoutingAny, RoutingByRow}
	priorities = []string{PriorityLow, PriorityMedium, PriorityHigh}
)

// AppProfile describes a program that uses the cluster through Cloud Bigtable's API, and how its requests are routed.
type AppProfile struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	// Routing is RoutingSingle or another of these values.
	Routing string `json:"routing"`
	// Transactional permits CheckAndMutateRow and ReadModifyWriteRow. Only with RoutingSingle.
	Transactional bool `json:"transactional"`
	// NamesCluster means that a profile that routes to any cluster lists the only one.
	NamesCluster bool `json:"names_cluster"`
	// Priority is PriorityLow or another of these values.
	Priority string `json:"priority"`
	// Etag changes with the other fields. In a request the profile must have it, unless it is empty.
	Etag string `json:"etag"`
}

// NewDefaultAppProfile returns the profile DefaultAppProfile as it is until it is changed, without its etag.
func NewDefaultAppProfile() AppProfile {
	return AppProfile{ID: DefaultAppProfile, Routing: RoutingSingle, Transactional: true, Priority: PriorityHigh}
}

func (p *AppProfile) fields() fields {
	return fields{
		{"id", &p.ID}, {"description", &p.Description}, {"routing", &p.Routing}, {"transactional", &p.Transactional},
		{"names_cluster", &p.NamesCluster}, {"priority", &p.Priority}, {"etag", &p.Etag},
	}
}

// Append encodes the result of create_app_profile and update_app_profile.
func (p *AppProfile) Append(e *wire.Encoder) { p.fields().append(e) }

// Decode decodes the result.
func (p *AppProfile) Decode(d *wire.Decoder) error {
	*p = AppProfile{}
	return p.fields().decode(d)
}

// Check checks the fields of a profile, apart from its id. Errors: a bad request, *table.LimitError.
func (p *AppProfile) Check() error {
	switch {
	case !slices.Contains(routings, p.Routing):
		return rpc.Errorf(rpc.CodeBadRequest, "routing is %.40q, want one of %q", p.Routing, routings)
	case !slices.Contains(priorities, p.Priority):
		return rpc.Errorf(rpc.CodeBadRequest, "priority is %.40q, want one of %q", p.Priority, priorities)
	case p.Transactional && p.Routing != RoutingSingle:
		return rpc.Errorf(rpc.CodeBadRequest, "transactional is set: routing must be %q, got %q", RoutingSingle, p.Routing)
	case p.NamesCluster && p.Routing == RoutingSingle:
		return rpc.Errorf(rpc.CodeBadRequest, "names_cluster is set: routing must not be %q", RoutingSingle)
	}
	if err := within("bytes of an etag", len(p.Etag), etagBytesMax); err != nil {
		return err
	}
	return within("bytes of the description of an app profile", len(p.Description), AppProfileDescriptionBytes)
}

// AppProfileRequest holds the parameters of create_app_profile and update_app_profile:
//
//	[id, options?]    options: description, routing, transactional, names_cluster, priority, etag
//
// The result is the profile.
type AppProfileRequest struct {
	Options
	Profile AppProfile
}

// Append encodes the parameters.
func (r *AppProfileRequest) Append(e *wire.Encoder) {
	p := &r.Profile
	texts := []struct{ key, value string }{{"description", p.Description}, {"routing", p.Routing}, {"priority", p.Priority}, {"etag", p.Etag}}
	flags := []struct {
		key   string
		value bool
	}{{"transactional", p.Transactional}, {"names_cluster", p.NamesCluster}}
	n := r.Options.count()
	for _, t := range texts {
		if t.value != "" {
			n++
		}
	}
	for _, f := range flags {
		if f.value {
			n++
		}
	}
	e.Array(1 + min(n, 1))
	e.Str(p.ID)
	r.Options.append(e, n)
	for _, t := range texts {
		if t.value != "" {
			e.Str(t.key)
			e.Str(t.value)
		}
	}
	for _, f := range flags {
		if f.value {
			e.Str(f.key)
			e.Bool(true)
		}
	}
}

// Decode decodes the n parameters in d of a method.
func (r *AppProfileRequest) Decode(d *wire.Decoder, n int, method string) error {
	if err := params(method, n, 1, 2); err != nil {
		return err
	}
	*r = AppProfileRequest{Profile: AppProfile{ID: d.Str(), Routing: RoutingSingle, Priority: PriorityHigh}}
	if err := r.Options.decode(d, n > 1, r); err != nil {
		return err
	}
	return r.Profile.Check()
}

func (r *AppProfileRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "description":
		r.Profile.Description = d.Str()
	case "routing":
		r.Profile.Routing = d.Str()
	case "priority":
		r.Profile.Priority = d.Str()
	case "etag":
		r.Profile.Etag = d.Str()
	case "transactional":
		r.Profile.Transactional = d.Bool()
	case "names_cluster":
		r.Profile.NamesCluster = d.Bool()
	default:
		return false
	}
	return true
}

// AppProfiles is the result of list_app_profiles, by id.
type AppProfiles struct{ Profiles []AppProfile }

func (x *AppProfiles) fields() fields {
	return fields{{"app_profiles", &list[AppProfile]{all: &x.Profiles, fields: (*AppProfile).fields, what: "app profiles", max: 2 * AppProfilesMax}}}
}

// Append encodes the result.
func (x *AppProfiles) Append(e *wire.Encoder) { x.fields().append(e) }

// Decode decodes the result.
func (x *AppProfiles) Decode(d *wire.Decoder) error {
	*x = AppProfiles{}
	return x.fields().decode(d)
}

// SchemaBundle has descriptors of protocol buffers that the values of a table's cells have. They have no effect on reads and writes.
type SchemaBundle struct {
	ID string `json:"id"`
	// Descriptors is an encoded google.protobuf.FileDescriptorSet, with all files that its files import.
	Descriptors []byte `json:"descriptors"`
	// Etag changes with Descriptors. In a request the bundle must have it, unless it is empty.
	Etag string `json:"etag"`
}

func (b *SchemaBundle) fields() fields {
	return fields{{"id", &b.ID}, {"descriptors", &b.Descriptors}, {"etag", &b.Etag}}
}

// Append encodes the result of create_schema_bundle and update_schema_bundle.
func (b *SchemaBundle) Append(e *wire.Encoder) { b.fields().append(e) }

// Decode decodes the result.
func (b *SchemaBundle) Decode(d *wire.Decoder) error {
	*b = SchemaBundle{}
	return b.fields().decode(d)
}

// SchemaBundleRequest holds the parameters of create_schema_bundle, update_schema_bundle, and delete_schema_bundle, which has no descriptors:
//
//	[table, id, descriptors, options?]    options: etag
//
// The result is the bundle, or nil.
type SchemaBundleRequest struct {
	Options
	Table string
	SchemaBundle
}

// params returns how many parameters of a method are before its options.
func (*SchemaBundleRequest) params(method string) int {
	if method == MethodDeleteSchemaBundle {
		return 2
	}
	return 3
}

// Encoder returns a function that encodes the parameters of a method.
func (r *SchemaBundleRequest) Encoder(method string) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		n, options := r.params(method), r.Options.count()
		if r.Etag != "" {
			options++
		}
		e.Array(n + min(options, 1))
		e.Str(r.Table)
		e.Str(r.ID)
		if n > 2 {
			e.Bin(r.Descriptors)
		}
		r.Options.append(e, options)
		if r.Etag != "" {
			e.Str("etag")
			e.Str(r.Etag)
		}
	}
}

// Decode decodes the n parameters in d of a method.
func (r *SchemaBundleRequest) Decode(d *wire.Decoder, n int, method string) error {
	least := r.params(method)
	if err := params(method, n, least, least+1); err != nil {
		return err
	}
	*r = SchemaBundleRequest{Table: d.Str(), SchemaBundle: SchemaBundle{ID: d.Str()}}
	if least > 2 {
		b := d.Bytes()
		if err := within("bytes of the schema bundles of a table", len(b), SchemaBundleBytesMax); err != nil {
			return err
		}
		r.Descriptors = append([]byte(nil), b...)
	}
	if err := r.Options.decode(d, n > least, r); err != nil {
		return err
	}
	return within("bytes of an etag", len(r.Etag), etagBytesMax)
}

func (r *SchemaBundleRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) != "etag" {
		return false
	}
	r.Etag = d.Str()
	return true
}

// SchemaBundles is the result of list_schema_bundles, by id.
type SchemaBundles struct{ Bundles []SchemaBundle }

func (x *SchemaBundles) fields() fields {
	return fields{{"schema_bundles", &list[SchemaBundle]{all: &x.Bundles, fields: (*SchemaBundle).fields, what: "schema bundles", max: 2 * SchemaBundlesMax}}}
}

// Append encodes the result.
func (x *SchemaBundles) Append(e *wire.Encoder) { x.fields().append(e) }

// Decode decodes the result.
func (x *SchemaBundles) Decode(d *wire.Decoder) error {
	*x = SchemaBundles{}
	return x.fields().decode(d)
}
