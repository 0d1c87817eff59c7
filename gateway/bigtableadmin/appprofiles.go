package bigtableadmin

import (
	"context"
	"errors"
	"slices"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// Profiles administers app profiles. client.AppProfiles implements it; see there for the errors.
type Profiles interface {
	List(ctx context.Context) ([]client.AppProfile, error)
	Create(ctx context.Context, p *client.AppProfile) (*client.AppProfile, error)
	Update(ctx context.Context, p *client.AppProfile) (*client.AppProfile, error)
	Delete(ctx context.Context, id string) error
}

var _ Profiles = client.AppProfiles{}

// Statuses of what a client may not have meant, and of what cannot be.
var (
	errStricter = status.Error(codes.FailedPrecondition,
		"The update makes CheckAndMutateRow and ReadModifyWriteRow fail for all programs with the app profile: set ignore_warnings to do that.")
	errProfileUsed    = status.Error(codes.FailedPrecondition, "Requests that name the app profile fail when it is deleted: set ignore_warnings to do that.")
	errProfileChanged = status.Error(codes.Aborted, "The app profile has changed since its etag was read: read it again.")
	errDefault        = status.Errorf(codes.FailedPrecondition, "The app profile %q cannot be deleted.", appProfileID)
	errDataBoost      = errcode.Unimplemented("Data Boost is not supported: all requests are executed by the nodes of the cluster. Use standard_isolation.")
)

// isolations are the priorities of the API.
var isolations = map[adminpb.AppProfile_Priority]string{
	adminpb.AppProfile_PRIORITY_UNSPECIFIED: api.PriorityHigh, // as before there were priorities
	adminpb.AppProfile_PRIORITY_LOW:         api.PriorityLow,
	adminpb.AppProfile_PRIORITY_MEDIUM:      api.PriorityMedium,
	adminpb.AppProfile_PRIORITY_HIGH:        api.PriorityHigh,
}

// setRouting sets the routing of a profile to that of a request. The error is a status.
func setRouting(to *client.AppProfile, from *adminpb.AppProfile) error {
	to.Routing, to.Transactional, to.NamesCluster = "", false, false
	var clusters []string
	switch r := from.GetRoutingPolicy().(type) {
	case *adminpb.AppProfile_SingleClusterRouting_:
		to.Routing, to.Transactional = api.RoutingSingle, r.SingleClusterRouting.GetAllowTransactionalWrites()
		clusters = []string{r.SingleClusterRouting.GetClusterId()}
	case *adminpb.AppProfile_MultiClusterRoutingUseAny_:
		to.Routing, clusters = api.RoutingAny, r.MultiClusterRoutingUseAny.GetClusterIds()
		if r.MultiClusterRoutingUseAny.GetRowAffinity() != nil {
			to.Routing = api.RoutingByRow
		}
		to.NamesCluster = len(clusters) > 0
	default:
		return errcode.Invalid("app_profile.routing_policy must be set")
	}
	for _, id := range clusters {
		if id != clusterID {
			return status.Errorf(codes.NotFound, "cluster %.80q not found: the only cluster of an instance is %q", id, clusterID)
		}
	}
	return nil
}

// setPriority sets the priority of a profile to that of a request. The error is a status.
func setPriority(to *client.AppProfile, from *adminpb.AppProfile) error {
	var p adminpb.AppProfile_Priority
	switch i := from.GetIsolation().(type) {
	case *adminpb.AppProfile_DataBoostIsolationReadOnly_:
		return errDataBoost
	case *adminpb.AppProfile_StandardIsolation_:
		p = i.StandardIsolation.GetPriority()
	case *adminpb.AppProfile_Priority_:
		p = i.Priority
	}
	text, ok := isolations[p]
	if !ok {
		return errcode.Invalid("app_profile.standard_isolation.priority %d is not a priority", p)
	}
	to.Priority = text
	return nil
}

// describeProfile returns what a response has of a profile.
func describeProfile(in names.Instance, p *client.AppProfile) *adminpb.AppProfile {
	to := &adminpb.AppProfile{Name: in.AppProfile(p.ID), Etag: p.Etag, Description: p.Description}
	priority := adminpb.AppProfile_PRIORITY_HIGH
	for of, text := range isolations {
		if text == p.Priority && of != adminpb.AppProfile_PRIORITY_UNSPECIFIED {
			priority = of
		}
	}
	to.Isolation = &adminpb.AppProfile_StandardIsolation_{StandardIsolation: &adminpb.AppProfile_StandardIsolation{Priority: priority}}
	if p.Routing == api.RoutingSingle {
		to.RoutingPolicy = &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{
			ClusterId: clusterID, AllowTransactionalWrites: p.Transactional}}
		return to
	}
	any := &adminpb.AppProfile_MultiClusterRoutingUseAny{}
	if p.NamesCluster {
		any.ClusterIds = []string{clusterID}
	}
	if p.Routing == api.RoutingByRow {
		any.Affinity = &adminpb.AppProfile_MultiClusterRoutingUseAny_RowAffinity_{RowAffinity: &adminpb.AppProfile_MultiClusterRoutingUseAny_RowAffinity{}}
	}
	to.RoutingPolicy = &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: any}
	return to
}

// openProfile returns the administration of profiles for a request that names one. Errors are statuses.
func (s *instances) openProfile(ctx context.Context, name string) (Profiles, names.Instance, string, error) {
	in, id, err := names.ParseAppProfile(name)
	if err != nil {
		return nil, in, id, errcode.Convert(err, errcode.Repeatable)
	}
	p, err := s.cfg.OpenProfiles(ctx)
	return p, in, id, errcode.Convert(err, errcode.Repeatable)
}

// profileOf returns a profile. Errors are statuses.
func profileOf(ctx context.Context, from Profiles, id string) (*client.AppProfile, error) {
	all, err := from.List(ctx)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	i := slices.IndexFunc(all, func(p client.AppProfile) bool { return p.ID == id })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "App profile %.80q not found.", id)
	}
	return &all[i], nil
}

// CreateAppProfile implements adminpb.BigtableInstanceAdminServer. The profile is one of all instances.
func (s *instances) CreateAppProfile(ctx context.Context, req *adminpb.CreateAppProfileRequest) (*adminpb.AppProfile, error) {
	in, err := names.ParseInstance(req.Parent)
	if err == nil {
		err = (names.Limits{Strict: s.cfg.StrictLimits}).CheckAppProfileID(req.AppProfileId)
	}
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	p := &client.AppProfile{ID: req.AppProfileId, Description: req.GetAppProfile().GetDescription()}
	if err := setRouting(p, req.AppProfile); err != nil {
		return nil, err
	}
	if err := setPriority(p, req.AppProfile); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	profiles, err := s.cfg.OpenProfiles(ctx)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	defer s.profilesChanged()
	if p, err = profiles.Create(ctx, p); err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return describeProfile(in, p), nil
}

// profilesChanged makes the node apply a change at once.
func (s *instances) profilesChanged() {
	if s.cfg.ProfilesChanged != nil {
		s.cfg.ProfilesChanged()
	}
}

// GetAppProfile implements adminpb.BigtableInstanceAdminServer.
func (s *instances) GetAppProfile(ctx context.Context, req *adminpb.GetAppProfileRequest) (*adminpb.AppProfile, error) {
	profiles, in, id, err := s.openProfile(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	p, err := profileOf(ctx, profiles, id)
	if err != nil {
		return nil, err
	}
	return describeProfile(in, p), nil
}

// ListAppProfiles implements adminpb.BigtableInstanceAdminServer. A page token is the id of the last profile of the page before.
func (s *instances) ListAppProfiles(ctx context.Context, req *adminpb.ListAppProfilesRequest) (*adminpb.ListAppProfilesResponse, error) {
	in, err := names.ParseInstance(req.Parent)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	if req.PageSize < 0 {
		return nil, errcode.Invalid("page_size must not be negative")
	}
	if in.ID == "-" { // all instances
		in.ID = defaultInstanceID
	}
	profiles, err := s.cfg.OpenProfiles(ctx)
	var all []client.AppProfile
	if err == nil {
		all, err = profiles.List(ctx)
	}
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	answer := &adminpb.ListAppProfilesResponse{}
	for i := range all {
		if all[i].ID <= req.PageToken {
			continue
		}
		if n := len(answer.AppProfiles); req.PageSize > 0 && n == int(req.PageSize) {
			answer.NextPageToken = all[i-1].ID
			break
		}
		answer.AppProfiles = append(answer.AppProfiles, describeProfile(in, &all[i]))
	}
	return answer, nil
}

// updateAttempts bounds how often an update without an etag is made when others change the profile at the same time.
const updateAttempts = 5

// UpdateAppProfile implements adminpb.BigtableInstanceAdminServer. The operation that it returns is done. An update that forbids single-row transactions
// needs ignore_warnings.
func (s *instances) UpdateAppProfile(ctx context.Context, req *adminpb.UpdateAppProfileRequest) (*longrunningpb.Operation, error) {
	profiles, in, id, err := s.openProfile(ctx, req.GetAppProfile().GetName())
	if err != nil {
		return nil, err
	}
	defer s.profilesChanged()
	for attempt := 1; ; attempt++ {
		old, err := profileOf(ctx, profiles, id)
		if err != nil {
			return nil, err
		}
		p, err := updatedProfile(old, req)
		if err != nil {
			return nil, err
		}
		if p.Etag == old.Etag && !req.IgnoreWarnings && old.Transactional && !p.Transactional {
			return nil, errStricter
		}
		made, err := profiles.Update(ctx, p)
		if errors.Is(err, api.ErrAppProfileChanged) && req.AppProfile.Etag == "" && attempt < updateAttempts {
			continue
		}
		if err != nil {
			return nil, errcode.Convert(err, errcode.Once)
		}
		name := in.AppProfile(id)
		return done(name, describeProfile(in, made), &adminpb.UpdateAppProfileMetadata{})
	}
}

// updatedProfile returns a profile with the fields of a request that its mask has; without a mask, with all of them. Its etag is that of the request, or
// else that of the profile. The error is a status.
func updatedProfile(old *client.AppProfile, req *adminpb.UpdateAppProfileRequest) (*client.AppProfile, error) {
	from, paths := req.AppProfile, req.GetUpdateMask().GetPaths()
	if len(paths) == 0 || slices.Contains(paths, "*") {
		paths = []string{"description", "routing_policy", "isolation"}
	}
	p := *old
	if len(from.Etag) > len(old.Etag) { // as long as a request may be
		return nil, errProfileChanged
	}
	if from.Etag != "" {
		p.Etag = from.Etag
	}
	for _, path := range paths {
		var err error
		switch path {
		case "description":
			p.Description = from.Description
		case "routing_policy", "single_cluster_routing", "multi_cluster_routing_use_any":
			err = setRouting(&p, from)
		case "single_cluster_routing.allow_transactional_writes":
			p.Routing, p.NamesCluster, p.Transactional = api.RoutingSingle, false, from.GetSingleClusterRouting().GetAllowTransactionalWrites()
		case "isolation", "standard_isolation", "standard_isolation.priority", "priority":
			err = setPriority(&p, from)
		case "data_boost_isolation_read_only":
			err = errDataBoost
		case "name", "etag":
		default:
			err = errcode.Invalid("update_mask has %.200q, which cannot be updated: want description, single_cluster_routing, multi_cluster_routing_use_any, standard_isolation or *", path)
		}
		if err != nil {
			return nil, err
		}
	}
	return &p, errcode.Convert(p.Check(), errcode.Once)
}

// DeleteAppProfile implements adminpb.BigtableInstanceAdminServer. It always needs ignore_warnings: a node does not know which programs name the profile.
func (s *instances) DeleteAppProfile(ctx context.Context, req *adminpb.DeleteAppProfileRequest) (*emptypb.Empty, error) {
	profiles, _, id, err := s.openProfile(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	if _, err := profileOf(ctx, profiles, id); err != nil {
		return nil, err
	}
	switch {
	case id == appProfileID:
		return nil, errDefault
	case !req.IgnoreWarnings:
		return nil, errProfileUsed
	}
	defer s.profilesChanged()
	if err := profiles.Delete(ctx, id); err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return &emptypb.Empty{}, nil
}
