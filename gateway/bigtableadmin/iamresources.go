package bigtableadmin

import (
	"context"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// Backups finds backups. client.Backups implements it; see there for the errors.
type Backups interface {
	Find(ctx context.Context, id string) (*client.Backup, error)
}

var _ Backups = client.Backups{}

// errBackupPolicy is the status of a change of a backup's policy.
var errBackupPolicy = status.Error(codes.FailedPrecondition,
	"A backup has no IAM policy of its own: rights on the cluster apply to it. Change them with SetIamPolicy of the instance, or stele acl grant.")

// resource is what has a policy: a table as a whole, a view of one, a backup, or the cluster, which is each instance, and has no names here.
type resource struct{ table, view, backup string }

// applicable returns the rights that apply to the resource.
func (r resource) applicable() rights {
	switch {
	case r.backup != "":
		return mayRead | mayAdmin
	case r.view != "":
		return mayRead | mayWrite
	case r.table != "":
		return mayRead | mayWrite | mayAdmin
	}
	return mayRead | mayWrite | mayAdmin | mayMonitor
}

// roles returns the names of the roles that a policy can have.
func (r resource) roles() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(roles)), func(role string) bool { return roles[role]&^r.applicable() != 0 })
}

// rightsBy returns the rights on the resource that grants give, with those that they imply. The caller sees a table or view that it names.
func (r resource) rightsBy(grants []client.Grant) (held rights) {
	if r.table != "" {
		held = maySee
	}
	for _, g := range grants {
		if g.Family == "" && (g.View == "" || g.View == r.view) && (g.Table == "" || g.Table == r.table) {
			held |= parseRights(g.Rights)
		}
	}
	return held.implied()
}

// The permissions of views and of backups begin with these. On a table, those of views are about all its views, and on an instance about all views and
// backups.
const (
	viewPermissions   = "bigtable.authorizedViews."
	backupPermissions = "bigtable.backups."
)

// tablePermissions are the rights on a table, or a view, that the permissions on it need.
var tablePermissions = map[string]rights{
	viewPermissions + "readRows":               mayRead,
	viewPermissions + "sampleRowKeys":          mayRead,
	viewPermissions + "mutateRows":             mayWrite,
	viewPermissions + "get":                    maySee,
	viewPermissions + "list":                   maySee,
	viewPermissions + "create":                 mayAdmin,
	viewPermissions + "update":                 mayAdmin,
	viewPermissions + "delete":                 mayAdmin,
	viewPermissions + "getIamPolicy":           mayAdmin,
	viewPermissions + "setIamPolicy":           mayAdmin,
	"bigtable.tables.readRows":                 mayRead,
	"bigtable.tables.sampleRowKeys":            mayRead,
	"bigtable.tables.mutateRows":               mayWrite,
	"bigtable.tables.get":                      maySee,
	"bigtable.tables.list":                     maySee,
	"bigtable.tables.checkConsistency":         maySee,
	"bigtable.tables.generateConsistencyToken": maySee,
	"bigtable.tables.delete":                   mayAdmin,
	"bigtable.tables.update":                   mayAdmin,
	"bigtable.tables.getIamPolicy":             mayAdmin,
	"bigtable.tables.setIamPolicy":             mayAdmin,
}

// clusterPermissions are the rights on the cluster that further permissions need; 0 means that it needs none. What no right
// permits, such as a change of an instance, is not among them.
var clusterPermissions = map[string]rights{
	backupPermissions + "get":          mayRead,
	backupPermissions + "list":         mayRead,
	backupPermissions + "create":       mayAdmin,
	backupPermissions + "delete":       mayAdmin,
	backupPermissions + "read":         mayAdmin,
	backupPermissions + "restore":      mayAdmin,
	backupPermissions + "getIamPolicy": mayAdmin,
	"bigtable.appProfiles.get":         0,
	"bigtable.appProfiles.list":        0,
	"bigtable.appProfiles.create":      mayAdmin,
	"bigtable.appProfiles.update":      mayAdmin,
	"bigtable.appProfiles.delete":      mayAdmin,
	"bigtable.clusters.get":            mayMonitor,
	"bigtable.clusters.list":           mayMonitor,
	"bigtable.hotTablets.list":         0,
	"bigtable.instances.get":           0,
	"bigtable.instances.list":          0,
	"bigtable.instances.ping":          0,
	"bigtable.instances.getIamPolicy":  mayAdmin,
	"bigtable.instances.setIamPolicy":  mayAdmin,
	"bigtable.tables.create":           mayAdmin,
	"bigtable.tables.undelete":         mayAdmin,
}

// needs returns the rights on the resource that a permission needs, and whether it is one of the resource.
func (r resource) needs(permission string) (needs rights, known bool) {
	if r.backup == "" {
		if needs, known = tablePermissions[permission]; known {
			return needs, r.view == "" || strings.HasPrefix(permission, viewPermissions)
		}
	}
	if r.table == "" {
		needs, known = clusterPermissions[permission]
	}
	return needs, known && (r.backup == "" || strings.HasPrefix(permission, backupPermissions))
}

// rightsOn returns what the IAM methods need for a table, view or backup that the caller may see. Errors are statuses.
func (s *Service) rightsOn(ctx context.Context, name string) (Caller, Grants, resource, error) {
	see := s.seeTable
	if names.IsBackup(name) {
		see = s.seeBackup
	}
	of, err := see(ctx, name)
	if err != nil {
		return nil, nil, of, errcode.Convert(err, errcode.Repeatable)
	}
	caller, grants, err := s.cfg.OpenRights(ctx)
	return caller, grants, of, errcode.Convert(err, errcode.Repeatable)
}

// seeTable returns a table or view that the caller may see.
func (s *Service) seeTable(ctx context.Context, name string) (resource, error) {
	n, err := names.ParseTableOrView(name)
	if err != nil {
		return resource{}, err
	}
	t, err := s.open(ctx)
	if err == nil && n.ID != "" {
		_, err = viewOf(ctx, t, n)
	} else if err == nil {
		_, err = schemaOf(ctx, t, n.Table)
	}
	return resource{table: n.Table.ID, view: n.ID}, err
}

// seeBackup returns a backup that the caller may see.
func (s *Service) seeBackup(ctx context.Context, name string) (resource, error) {
	n, err := names.ParseBackup(name)
	if err != nil {
		return resource{}, err
	}
	of := resource{backup: n.ID}
	if n.Cluster != clusterID {
		return of, status.Errorf(codes.NotFound, "cluster %q not found", n.Instance.Cluster(n.Cluster))
	}
	b, err := s.cfg.OpenBackups(ctx)
	if err == nil {
		_, err = b.Find(ctx, n.ID)
	}
	return of, err
}

// GetIamPolicy implements adminpb.BigtableTableAdminServer. Grants on families of the table, and on the cluster, are not part of the policy of a table.
// That of a backup has the grants on the cluster by which it can be used.
func (s *Service) GetIamPolicy(ctx context.Context, req *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	_, grants, of, err := s.rightsOn(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	return getPolicy(ctx, grants, of)
}

// SetIamPolicy implements adminpb.BigtableTableAdminServer. The policy of a backup cannot be set.
func (s *Service) SetIamPolicy(ctx context.Context, req *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	_, grants, of, err := s.rightsOn(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	if of.backup != "" {
		return nil, errBackupPolicy
	}
	return setPolicy(ctx, grants, of, req.GetPolicy())
}

// TestIamPermissions implements adminpb.BigtableTableAdminServer. It returns the permissions that the caller has on all families of the table, on the view,
// or on the backup. A caller that may not see backups has none on any.
func (s *Service) TestIamPermissions(ctx context.Context, req *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	if err := checkPermissions(req.GetPermissions()); err != nil {
		return nil, err
	}
	caller, _, of, err := s.rightsOn(ctx, req.GetResource())
	if err != nil && names.IsBackup(req.GetResource()) && status.Code(err) == codes.PermissionDenied {
		return &iampb.TestIamPermissionsResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return heldPermissions(ctx, caller, of, req.GetPermissions())
}

// rightsOn returns what the IAM methods need for an instance, whose rights are those on the cluster. Errors are statuses.
func (s *instances) rightsOn(ctx context.Context, name string) (Caller, Grants, error) {
	_, err := names.ParseInstance(name)
	if err != nil {
		return nil, nil, errcode.Convert(err, errcode.Repeatable)
	}
	caller, grants, err := s.cfg.OpenRights(ctx)
	return caller, grants, errcode.Convert(err, errcode.Repeatable)
}

// GetIamPolicy implements adminpb.BigtableInstanceAdminServer. Grants on tables are not part of the policy.
func (s *instances) GetIamPolicy(ctx context.Context, req *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	_, grants, err := s.rightsOn(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	return getPolicy(ctx, grants, resource{})
}

// SetIamPolicy implements adminpb.BigtableInstanceAdminServer.
func (s *instances) SetIamPolicy(ctx context.Context, req *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	_, grants, err := s.rightsOn(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	return setPolicy(ctx, grants, resource{}, req.GetPolicy())
}

// TestIamPermissions implements adminpb.BigtableInstanceAdminServer. It returns the permissions that the caller has on all tables, and on the cluster.
func (s *instances) TestIamPermissions(ctx context.Context, req *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	if err := checkPermissions(req.GetPermissions()); err != nil {
		return nil, err
	}
	caller, _, err := s.rightsOn(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	return heldPermissions(ctx, caller, resource{}, req.GetPermissions())
}
