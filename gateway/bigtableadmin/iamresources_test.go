package bigtableadmin

import (
	"context"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

const iamBackup = parent + "/clusters/stele/backups/b"

// policies is a service with IAM methods.
type policies interface {
	GetIamPolicy(context.Context, *iampb.GetIamPolicyRequest) (*iampb.Policy, error)
	SetIamPolicy(context.Context, *iampb.SetIamPolicyRequest) (*iampb.Policy, error)
	TestIamPermissions(context.Context, *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error)
}

// permitted returns the permissions that the caller has of some, or a code.
func permitted(t *testing.T, s policies, resource string, ask ...string) string {
	t.Helper()
	got, err := s.TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: resource, Permissions: ask})
	if err != nil {
		return status.Code(err).String()
	}
	return strings.ReplaceAll(strings.Join(got.Permissions, " "), "bigtable.", "")
}

// TestIamInstance (GA3): the policy of an instance is the grants on the cluster, and setting the policy that was read changes nothing.
func TestIamInstance(t *testing.T) {
	f := &fakeRights{all: []client.Grant{
		{Principal: "root", Rights: "read,write,admin,monitor"}, {Principal: "bob", Rights: "read,write"}, {Principal: "eve", Rights: "read,monitor"},
		{Principal: "mon", Rights: "monitor"}, {Principal: "wim", Rights: "write,monitor"}, {Principal: "*", Rights: "monitor"},
		{Principal: "ann", Table: "t", Rights: "admin"}, {Principal: "eve", Table: "t", View: "v", Rights: "write"},
	}}
	s := &instances{cfg: f.service().cfg}
	p, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: parent})
	want := "bigtable.admin=user:root bigtable.reader=user:eve bigtable.user=user:bob bigtable.viewer=allAuthenticatedUsers+user:mon+user:wim stele.writer=user:wim"
	if err != nil || bindings(p) != want || len(p.Etag) == 0 {
		t.Fatalf("%s, %v\nwant %s", bindings(p), err, want)
	}
	again, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: parent, Policy: p})
	if err != nil || bindings(again) != want || len(f.log) > 0 || string(again.Etag) != string(p.Etag) {
		t.Errorf("%s, %v, calls %v", bindings(again), err, f.log)
	}
	next := &iampb.Policy{Etag: p.Etag, Bindings: []*iampb.Binding{{Role: "roles/bigtable.admin", Members: []string{"user:bob"}},
		{Role: "roles/bigtable.viewer", Members: []string{"user:eve", "user:bob"}}, {Role: "roles/bigtable.reader", Members: []string{"user:mon"}}}}
	if p, err = s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: parent, Policy: next}); err != nil {
		t.Fatal(err)
	}
	if want := "bigtable.admin=user:bob bigtable.reader=user:mon bigtable.viewer=user:eve"; bindings(p) != want {
		t.Errorf("%s, want %s", bindings(p), want)
	}
	want = "+bob  admin;+eve  monitor;+mon  read;-*  monitor;-bob  read,write;-eve  read,monitor;-mon  monitor;-root  read,write,admin,monitor;-wim  write,monitor"
	if want := strings.Split(want, ";"); !slices.Equal(f.log, want) {
		t.Errorf("calls %q, want %q", f.log, want)
	}
	if _, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: parent, Policy: next}); status.Code(err) != codes.Aborted {
		t.Errorf("with the etag of an earlier policy: %v", err)
	}
	if got := len(slices.DeleteFunc(slices.Clone(f.all), func(g client.Grant) bool { return g.Table == "" })); got != 2 {
		t.Errorf("grants %+v", f.all)
	}
}

// TestIamInstanceErrors: an instance has the errors of tables, and its name is that of no other resource.
func TestIamInstanceErrors(t *testing.T) {
	f := &fakeRights{fail: map[string]error{"unknown": client.ErrNoUser, "last": client.ErrLastAdmin}}
	s := &instances{cfg: f.service().cfg}
	for _, tc := range []struct {
		resource, role, member string
		want                   codes.Code
	}{
		{parent, "roles/owner", "user:ann", codes.InvalidArgument},
		{parent, "roles/bigtable.reader", "group:ann", codes.InvalidArgument},
		{parent, "roles/bigtable.reader", "user:unknown", codes.InvalidArgument},
		{parent, "roles/bigtable.reader", "user:last", codes.FailedPrecondition},
		{iamTable, "roles/bigtable.reader", "user:ann", codes.InvalidArgument},
		{iamBackup, "roles/bigtable.reader", "user:ann", codes.InvalidArgument},
		{"", "roles/bigtable.reader", "user:ann", codes.InvalidArgument},
	} {
		policy := &iampb.Policy{Bindings: []*iampb.Binding{{Role: tc.role, Members: []string{tc.member}}}}
		if _, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: tc.resource, Policy: policy}); status.Code(err) != tc.want {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	if _, err := f.service().SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: iamTable,
		Policy: &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/bigtable.viewer", Members: []string{"user:ann"}}}}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a viewer of a table: %v", err)
	}
	for _, resource := range []string{iamTable, iamBackup} {
		if got := permitted(t, s, resource, "bigtable.tables.get"); got != "InvalidArgument" {
			t.Errorf("permissions on %s as an instance: %s", resource, got)
		}
	}
	if got := permitted(t, s, parent, "bigtable.instances.*"); got != "InvalidArgument" {
		t.Errorf("a wildcard: %s", got)
	}
	f.fail["list"] = client.ErrOpenCluster
	if p, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: parent}); err != nil || len(p.Bindings) > 0 {
		t.Errorf("of an open cluster: %v, %v", p, err)
	}
	f.fail["list"] = client.ErrPermission
	for what, err := range map[string]error{
		"get": second(s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: parent})),
		"set": second(s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: parent, Policy: &iampb.Policy{}})),
	} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s without the right: %v", what, err)
		}
	}
	if len(f.log) > 0 {
		t.Errorf("changes %q", f.log)
	}
}

func second[T any](_ T, err error) error { return err }

// TestIamInstancePermissions: on an instance, a caller has the permissions of its grants on the cluster.
func TestIamInstancePermissions(t *testing.T) {
	ask := []string{"bigtable.instances.get", "bigtable.clusters.get", "bigtable.tables.get", "bigtable.tables.readRows", "bigtable.backups.get",
		"bigtable.tables.mutateRows", "bigtable.tables.create", "bigtable.instances.setIamPolicy", "bigtable.backups.delete", "bigtable.instances.delete"}
	all := "instances.get clusters.get tables.get tables.readRows backups.get tables.mutateRows tables.create instances.setIamPolicy backups.delete"
	for _, tc := range []struct {
		kind  string
		grant client.Grant
		want  string
	}{
		{api.KindAnonymous, client.Grant{}, all},
		{api.KindPrincipal, client.Grant{Rights: "admin"}, all},
		{api.KindPrincipal, client.Grant{Rights: "read"}, "instances.get clusters.get tables.get tables.readRows backups.get"},
		{api.KindPrincipal, client.Grant{Rights: "write"}, "instances.get tables.get tables.mutateRows"},
		{api.KindPrincipal, client.Grant{Rights: "monitor"}, "instances.get clusters.get"},
		{api.KindPrincipal, client.Grant{Table: "t", Rights: "admin"}, "instances.get"},
		{api.KindPrincipal, client.Grant{Table: "t", View: "v", Rights: "read"}, "instances.get"},
	} {
		f := &fakeRights{me: client.Whoami{Kind: tc.kind, Grants: []client.Grant{tc.grant}}}
		if got := permitted(t, &instances{cfg: f.service().cfg}, parent, ask...); got != tc.want {
			t.Errorf("%s %+v: %s, want %s", tc.kind, tc.grant, got, tc.want)
		}
	}
}

// TestIamBackup: the policy of a backup is the grants on the cluster by which it can be used, and it cannot be set.
func TestIamBackup(t *testing.T) {
	f := &fakeRights{all: []client.Grant{
		{Principal: "root", Rights: "admin"}, {Principal: "bob", Rights: "read,write"}, {Principal: "mon", Rights: "monitor"}, {Principal: "wim", Rights: "write"},
		{Principal: "ann", Table: "t", Rights: "admin"},
	}}
	s := f.service()
	p, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: iamBackup})
	if want := "bigtable.admin=user:root bigtable.reader=user:bob"; err != nil || bindings(p) != want {
		t.Errorf("%s, %v, want %s", bindings(p), err, want)
	}
	_, err = s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: iamBackup, Policy: p})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "stele acl grant") || len(f.log) > 0 {
		t.Errorf("set: %v, calls %q", err, f.log)
	}
	for resource, want := range map[string]codes.Code{
		parent + "/clusters/stele/backups/other":  codes.NotFound,
		parent + "/clusters/other/backups/b":      codes.NotFound,
		parent + "/clusters/stele":                codes.InvalidArgument,
		parent + "/clusters/stele/backups/b/more": codes.InvalidArgument,
	} {
		if _, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: resource}); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", resource, err, want)
		}
		if got := permitted(t, s, resource, "bigtable.backups.get"); got != want.String() {
			t.Errorf("permissions on %s: %s, want %v", resource, got, want)
		}
	}
}

// TestIamBackupPermissions: on a backup, a caller has the permissions of its grants on the cluster, and none if it may not see backups.
func TestIamBackupPermissions(t *testing.T) {
	ask := []string{"bigtable.backups.get", "bigtable.backups.restore", "bigtable.backups.getIamPolicy", "bigtable.backups.setIamPolicy", "bigtable.tables.get", "bigtable.instances.get"}
	for _, tc := range []struct {
		grant client.Grant
		want  string
	}{
		{client.Grant{Rights: "admin"}, "backups.get backups.restore backups.getIamPolicy"},
		{client.Grant{Rights: "read"}, "backups.get"},
		{client.Grant{Table: "t", Rights: "admin"}, ""},
	} {
		f := &fakeRights{me: client.Whoami{Kind: api.KindPrincipal, Grants: []client.Grant{tc.grant}}}
		if got := permitted(t, f.service(), iamBackup, ask...); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.grant, got, tc.want)
		}
	}
	f := &fakeRights{me: client.Whoami{Kind: api.KindPrincipal, Grants: []client.Grant{{Rights: "monitor"}}}, denied: client.ErrPermission}
	for _, resource := range []string{iamBackup, parent + "/clusters/stele/backups/other"} {
		if got := permitted(t, f.service(), resource, ask...); got != "" {
			t.Errorf("%s without the right to see it: %s", resource, got)
		}
		for what, err := range map[string]error{
			"get": second(f.service().GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: resource})),
			"set": second(f.service().SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: resource})),
		} {
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s %s without the right: %v", what, resource, err)
			}
		}
	}
	f.denied = client.ErrUnavailable
	if got := permitted(t, f.service(), iamBackup, ask...); got != "Unavailable" {
		t.Errorf("while backups cannot be read: %s", got)
	}
}
