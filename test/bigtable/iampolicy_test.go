package bigtable

import (
	"slices"
	"sync"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestIamPolicyRace: of two administrators that set the policy which both have read, at the same time and on different nodes, one succeeds. At last one
// of them replaces both, and cannot read the policy any more.
func TestIamPolicyRace(t *testing.T) {
	s := startSecured(t)
	names := []string{"ann", "bob"}
	var tokens []string
	for _, name := range names {
		tokens = append(tokens, s.user(name, "admin", table))
	}
	s.user("eve", "", "")
	resource := "projects/p/instances/i/tables/" + table
	admins := []string{"user:ann", "user:bob"}
	var admin []adminpb.BigtableTableAdminClient
	for i := range names {
		admin = append(admin, adminpb.NewBigtableTableAdminClient(s.dial(s.nodes[i], nil)))
	}
	set := func(i int, etag []byte, role string, members ...string) error {
		p := &iampb.Policy{Etag: etag, Bindings: []*iampb.Binding{{Role: role, Members: members}}}
		if role != "roles/bigtable.admin" {
			p.Bindings = append(p.Bindings, &iampb.Binding{Role: "roles/bigtable.admin", Members: admins})
		}
		_, err := admin[i].SetIamPolicy(withToken(t.Context(), tokens[i]), &iampb.SetIamPolicyRequest{Resource: resource, Policy: p})
		return err
	}
	get := func() (*iampb.Policy, error) {
		return admin[0].GetIamPolicy(withToken(t.Context(), tokens[0]), &iampb.GetIamPolicyRequest{Resource: resource})
	}
	roles := []string{"roles/bigtable.reader", "roles/bigtable.user", "roles/stele.writer"}
	for round := range 6 {
		p, err := get()
		if err != nil {
			t.Fatal(err)
		}
		others := slices.DeleteFunc(slices.Clone(roles), func(role string) bool { // those that eve has not yet
			return slices.ContainsFunc(p.Bindings, func(b *iampb.Binding) bool { return b.Role == role })
		})
		var calls sync.WaitGroup
		var results [2]codes.Code
		for i := range names {
			calls.Go(func() { results[i] = status.Code(set(i, p.Etag, others[i], "user:eve")) })
		}
		calls.Wait()
		if results != [2]codes.Code{codes.OK, codes.Aborted} && results != [2]codes.Code{codes.Aborted, codes.OK} {
			t.Errorf("round %d: %v, want one OK and one Aborted", round, results)
		}
	}
	expectCode(t, "ann replaces all administrators", set(0, nil, "roles/bigtable.admin", "user:eve"), codes.OK)
	_, err := get()
	expectCode(t, "ann reads the policy", err, codes.NotFound)
	grants, err := s.admin.Grants().List(t.Context(), table, "")
	if err != nil || len(grants) != 1 || grants[0].Principal != "eve" || grants[0].Rights != "admin" {
		t.Errorf("grants %+v, %v", grants, err)
	}
}
