package bigtableadmin

import (
	"context"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// What cannot be changed is answered with FAILED_PRECONDITION and the reason.
var (
	errInstances = status.Error(codes.FailedPrecondition, "Instances cannot be changed: every instance name is a name of the same tables.")
	errClusters  = status.Error(codes.FailedPrecondition, "Clusters cannot be changed: an instance has one, whose nodes are those that are alive.")
)

// CreateInstance implements adminpb.BigtableInstanceAdminServer: every instance exists already.
func (s *instances) CreateInstance(_ context.Context, req *adminpb.CreateInstanceRequest) (*longrunningpb.Operation, error) {
	in, err := names.ParseInstance(req.Parent + "/instances/" + req.InstanceId)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return nil, status.Errorf(codes.AlreadyExists, "instance %q already exists: every instance name is a name of the same tables", in)
}

// UpdateInstance implements adminpb.BigtableInstanceAdminServer.
func (s *instances) UpdateInstance(context.Context, *adminpb.Instance) (*adminpb.Instance, error) {
	return nil, errInstances
}

// PartialUpdateInstance implements adminpb.BigtableInstanceAdminServer.
func (s *instances) PartialUpdateInstance(context.Context, *adminpb.PartialUpdateInstanceRequest) (*longrunningpb.Operation, error) {
	return nil, errInstances
}

// DeleteInstance implements adminpb.BigtableInstanceAdminServer.
func (s *instances) DeleteInstance(context.Context, *adminpb.DeleteInstanceRequest) (*emptypb.Empty, error) {
	return nil, errInstances
}

// CreateCluster implements adminpb.BigtableInstanceAdminServer.
func (s *instances) CreateCluster(context.Context, *adminpb.CreateClusterRequest) (*longrunningpb.Operation, error) {
	return nil, errClusters
}

// UpdateCluster implements adminpb.BigtableInstanceAdminServer.
func (s *instances) UpdateCluster(context.Context, *adminpb.Cluster) (*longrunningpb.Operation, error) {
	return nil, errClusters
}

// PartialUpdateCluster implements adminpb.BigtableInstanceAdminServer.
func (s *instances) PartialUpdateCluster(context.Context, *adminpb.PartialUpdateClusterRequest) (*longrunningpb.Operation, error) {
	return nil, errClusters
}

// DeleteCluster implements adminpb.BigtableInstanceAdminServer.
func (s *instances) DeleteCluster(context.Context, *adminpb.DeleteClusterRequest) (*emptypb.Empty, error) {
	return nil, errClusters
}

// ListLogicalViews implements adminpb.BigtableInstanceAdminServer. There are none.
func (s *instances) ListLogicalViews(context.Context, *adminpb.ListLogicalViewsRequest) (*adminpb.ListLogicalViewsResponse, error) {
	return &adminpb.ListLogicalViewsResponse{}, nil
}

// ListMaterializedViews implements adminpb.BigtableInstanceAdminServer. There are none.
func (s *instances) ListMaterializedViews(context.Context, *adminpb.ListMaterializedViewsRequest) (*adminpb.ListMaterializedViewsResponse, error) {
	return &adminpb.ListMaterializedViewsResponse{}, nil
}
