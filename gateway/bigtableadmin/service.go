package bigtableadmin

import (
	"context"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/names"
	"github.com/steledb/stele/table"
)

// Tables administers tables. client.Tables implements it; see there for the errors.
type Tables interface {
	List(ctx context.Context) ([]*table.Schema, error)
	Describe(ctx context.Context, name string) (*client.TableInfo, error)
	CreateFrom(ctx context.Context, name string, spec *client.TableSpec) (*table.Schema, error)
	Alter(ctx context.Context, tableName string, changes ...table.Change) (*table.Schema, error)
	Drop(ctx context.Context, name string) error
	Undrop(ctx context.Context, ref client.DroppedRef, as string) (*table.Schema, error)
	ClearRows(ctx context.Context, name, start, end string) error
	ClearPrefix(ctx context.Context, name, prefix string) error
	Hot(ctx context.Context, r *client.HotTabletsRequest) (*client.HotTabletList, error)
}

var _ Tables = client.Tables{}

// Nodes lists the nodes of the cluster. client.Nodes implements it.
type Nodes interface {
	List(ctx context.Context) ([]client.NodeInfo, error)
}

// Config is what a Service needs.
type Config struct {
	// Open returns what the caller in the context of a request may administer. Its errors become
	// statuses by package errcode.
	Open func(ctx context.Context) (Tables, Nodes, error)
	// OpenRights returns the caller, and the rights that it may administer. Its errors are like those of Open.
	OpenRights func(ctx context.Context) (Caller, Grants, error)
	// OpenBackups returns the backups that the caller may see. Its errors are like those of Open.
	OpenBackups func(ctx context.Context) (Backups, error)
	// OpenBundles returns the schema bundles of a table as the caller may administer them. Its errors are like those of Open.
	OpenBundles func(ctx context.Context, table string) (Bundles, error)
	// OpenProfiles returns the app profiles as the caller may administer them. Its errors are like those of Open.
	OpenProfiles func(ctx context.Context) (Profiles, error)
	// ProfilesChanged, unless it is nil, is called after a change of app profiles.
	ProfilesChanged func()
	// StrictLimits rejects requests beyond the limits of Google's service, even if they are within those of the cluster.
	StrictLimits bool
}

// Ids of what an instance contains.
const (
	clusterID         = names.ClusterID
	appProfileID      = api.DefaultAppProfile
	defaultInstanceID = "default"
)

// Service serves google.bigtable.admin.v2.BigtableTableAdmin. Register adds the services beside it.
type Service struct {
	adminpb.UnimplementedBigtableTableAdminServer
	cfg Config
}

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// Register registers the administration of tables and instances, and long-running operations.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	adminpb.RegisterBigtableTableAdminServer(r, s)
	adminpb.RegisterBigtableInstanceAdminServer(r, &instances{cfg: s.cfg})
	longrunningpb.RegisterOperationsServer(r, operations{})
}

// operations serves google.longrunning.Operations. There are none: changes are made at once.
type operations struct {
	longrunningpb.UnimplementedOperationsServer
}

// GetOperation implements longrunningpb.OperationsServer.
func (operations) GetOperation(_ context.Context, req *longrunningpb.GetOperationRequest) (*longrunningpb.Operation, error) {
	return nil, status.Errorf(codes.NotFound, "operation %.200q not found", req.Name)
}

// ListOperations implements longrunningpb.OperationsServer.
func (operations) ListOperations(context.Context, *longrunningpb.ListOperationsRequest) (*longrunningpb.ListOperationsResponse, error) {
	return &longrunningpb.ListOperationsResponse{}, nil
}
