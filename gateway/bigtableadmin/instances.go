package bigtableadmin

import (
	"context"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// instances serves google.bigtable.admin.v2.BigtableInstanceAdmin: app profiles, and what can be read of instances and clusters, which cannot be
// changed.
type instances struct {
	adminpb.UnimplementedBigtableInstanceAdminServer
	cfg Config
}

// ListInstances implements adminpb.BigtableInstanceAdminServer. It lists one of the names of the
// cluster's namespace.
func (s *instances) ListInstances(_ context.Context, req *adminpb.ListInstancesRequest) (*adminpb.ListInstancesResponse, error) {
	project, err := names.ParseProject(req.Parent)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return &adminpb.ListInstancesResponse{Instances: []*adminpb.Instance{describeInstance(names.Instance{Project: project, ID: defaultInstanceID})}}, nil
}

// GetInstance implements adminpb.BigtableInstanceAdminServer.
func (s *instances) GetInstance(_ context.Context, req *adminpb.GetInstanceRequest) (*adminpb.Instance, error) {
	in, err := names.ParseInstance(req.Name)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return describeInstance(in), nil
}

func describeInstance(in names.Instance) *adminpb.Instance {
	return &adminpb.Instance{Name: in.String(), DisplayName: in.ID, State: adminpb.Instance_READY, Type: adminpb.Instance_PRODUCTION}
}

// ListClusters implements adminpb.BigtableInstanceAdminServer.
func (s *instances) ListClusters(ctx context.Context, req *adminpb.ListClustersRequest) (*adminpb.ListClustersResponse, error) {
	in, err := names.ParseInstance(req.Parent)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	if in.ID == "-" { // all instances
		in.ID = defaultInstanceID
	}
	c, err := s.cluster(ctx, in)
	if err != nil {
		return nil, err
	}
	return &adminpb.ListClustersResponse{Clusters: []*adminpb.Cluster{c}}, nil
}

// GetCluster implements adminpb.BigtableInstanceAdminServer.
func (s *instances) GetCluster(ctx context.Context, req *adminpb.GetClusterRequest) (*adminpb.Cluster, error) {
	in, id, err := names.ParseCluster(req.Name)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	if id != clusterID {
		return nil, status.Errorf(codes.NotFound, "cluster %q not found", req.Name)
	}
	return s.cluster(ctx, in)
}

// cluster describes the cluster. Its location is the most common zone of the nodes that are alive.
// Errors are statuses.
func (s *instances) cluster(ctx context.Context, in names.Instance) (*adminpb.Cluster, error) {
	_, nodes, err := s.cfg.Open(ctx)
	var all []client.NodeInfo
	if err == nil {
		all, err = nodes.List(ctx)
	}
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	zones, zone, alive := map[string]int{}, "", 0
	for i := range all {
		if all[i].State != api.NodeAlive {
			continue
		}
		alive++
		z := all[i].Zone
		if zones[z]++; zones[z] > zones[zone] || zones[z] == zones[zone] && z < zone {
			zone = z
		}
	}
	if zone == "" {
		zone = names.NoZone
	}
	return &adminpb.Cluster{Name: in.Cluster(clusterID), Location: "projects/" + in.Project + "/locations/" + zone,
		State: adminpb.Cluster_READY, ServeNodes: int32(alive), DefaultStorageType: adminpb.StorageType_SSD}, nil
}
