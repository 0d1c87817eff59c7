package bigtable

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
)

// iamCaller calls the IAM methods of an instance, and of a backup of its table, as a user.
type iamCaller struct {
	ctx      context.Context
	instance adminpb.BigtableInstanceAdminClient
	tables   adminpb.BigtableTableAdminClient
	backup   string
}

func newIamCaller(ctx context.Context, c *grpc.ClientConn, backup string) *iamCaller {
	return &iamCaller{ctx, adminpb.NewBigtableInstanceAdminClient(c), adminpb.NewBigtableTableAdminClient(c), backup}
}

const iamInstance = "projects/p/instances/i"

// bind adds a binding to the policy of the instance, or removes all of the member's others if the role is empty.
func (c *iamCaller) bind(member, role string) error {
	p, err := c.instance.GetIamPolicy(c.ctx, &iampb.GetIamPolicyRequest{Resource: iamInstance})
	if err != nil {
		return err
	}
	kept := &iampb.Policy{Etag: p.Etag}
	for _, b := range p.Bindings {
		if role != "" || len(b.Members) != 1 || b.Members[0] != member {
			kept.Bindings = append(kept.Bindings, b)
		}
	}
	if role != "" {
		kept.Bindings = append(kept.Bindings, &iampb.Binding{Role: role, Members: []string{member}})
	}
	_, err = c.instance.SetIamPolicy(c.ctx, &iampb.SetIamPolicyRequest{Resource: iamInstance, Policy: kept})
	return err
}

// permissions returns the permissions on the instance and on the backup.
func (c *iamCaller) permissions() string {
	ask := []string{"bigtable.instances.get", "bigtable.clusters.get", "bigtable.tables.readRows", "bigtable.tables.create", "bigtable.backups.get", "bigtable.backups.restore"}
	ofInstance, err := c.instance.TestIamPermissions(c.ctx, &iampb.TestIamPermissionsRequest{Resource: iamInstance, Permissions: ask})
	if err != nil {
		return status.Code(err).String()
	}
	ofBackup, err := c.tables.TestIamPermissions(c.ctx, &iampb.TestIamPermissionsRequest{Resource: c.backup, Permissions: ask})
	if err != nil {
		return status.Code(err).String()
	}
	return strings.ReplaceAll(fmt.Sprint(ofInstance.Permissions, ofBackup.Permissions), "bigtable.", "")
}

// policy returns the code of GetIamPolicy and that of SetIamPolicy, of the backup.
func (c *iamCaller) policy() string {
	p, get := c.tables.GetIamPolicy(c.ctx, &iampb.GetIamPolicyRequest{Resource: c.backup})
	_, set := c.tables.SetIamPolicy(c.ctx, &iampb.SetIamPolicyRequest{Resource: c.backup, Policy: p})
	return fmt.Sprint(status.Code(get), " ", status.Code(set))
}

// TestSecuredIamInstance: the policy of an instance is the grants on the cluster, which backups have, too. What it gives is in effect when it is set, and
// only administrators of the cluster may read and set it.
func TestSecuredIamInstance(t *testing.T) {
	s := startSecured(t)
	id, err := s.admin.Backups().Create(t.Context(), 0, table)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.Backups().Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	backup := iamInstance + "/clusters/stele/backups/" + id
	ann, bob := s.user("ann", "admin", table), s.user("bob", "admin", "")
	as := func(token string) *iamCaller {
		return newIamCaller(withToken(t.Context(), token), s.dial(s.nodes[1], nil), backup)
	}
	byAnn, byBob := as(ann), as(bob)
	expect := func(when, permissions, policy string) {
		t.Helper()
		if got := byAnn.permissions(); got != permissions {
			t.Errorf("%s, ann has %s, want %s", when, got, permissions)
		}
		if got := byAnn.policy(); got != policy {
			t.Errorf("%s, ann gets and sets the policy of the backup: %s, want %s", when, got, policy)
		}
		expectCode(t, when+", ann makes herself an administrator", byAnn.bind("user:ann", "roles/bigtable.admin"), codes.PermissionDenied)
	}
	expect("without a right on the cluster", "[instances.get] []", "PermissionDenied PermissionDenied")
	expectCode(t, "a viewer", byBob.bind("user:ann", "roles/bigtable.viewer"), codes.OK)
	expect("as a viewer", "[instances.get clusters.get] []", "PermissionDenied PermissionDenied")
	if _, err := byAnn.instance.GetCluster(byAnn.ctx, &adminpb.GetClusterRequest{Name: iamInstance + "/clusters/stele"}); err != nil {
		t.Errorf("ann reads the cluster as a viewer: %v", err)
	}
	expectCode(t, "a reader", byBob.bind("user:ann", "roles/bigtable.reader"), codes.OK)
	expect("as a reader", "[instances.get clusters.get tables.readRows backups.get] [backups.get]", "PermissionDenied FailedPrecondition")
	if got, want := byBob.permissions(), "[instances.get clusters.get tables.readRows tables.create backups.get backups.restore] [backups.get backups.restore]"; got != want {
		t.Errorf("bob has %s, want %s", got, want)
	}
	if got := byBob.policy(); got != "OK FailedPrecondition" {
		t.Errorf("bob gets and sets the policy of the backup: %s", got)
	}
	expectCode(t, "no role", byBob.bind("user:ann", ""), codes.OK)
	expect("without a right again", "[instances.get] []", "PermissionDenied PermissionDenied")
	if _, err := byBob.instance.SetIamPolicy(byBob.ctx, &iampb.SetIamPolicyRequest{Resource: iamInstance, Policy: &iampb.Policy{}}); err == nil {
		t.Error("no administrator is left")
	}
	grants, err := s.admin.Grants().List(t.Context(), table, "ann")
	if want := (client.Grant{Principal: "ann", Table: table, Rights: "admin"}); err != nil || len(grants) != 1 || grants[0] != want {
		t.Errorf("grants on the table: %+v, %v", grants, err)
	}
}
