package users

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes/changestest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// rightsList returns rights in the order principal, rights, principal, rights and so on.
func rightsList(texts ...string) (all []api.PrincipalRights) {
	for pair := range slices.Chunk(texts, 2) {
		all = append(all, api.PrincipalRights{Principal: pair[0], Rights: pair[1]})
	}
	return all
}

// TestSetGrants: grants are replaced as a whole if they are the expected ones, and otherwise not at all, by administrators of the object.
func TestSetGrants(t *testing.T) {
	t.Parallel()
	m, ann := withGrants(t)
	admin, bob := changestest.Admin(), changestest.User("bob", m.record("bob").Generation)
	m.must(api.MethodGrant, &api.GrantRequest{Principal: "carl", Rights: "read", Table: "t", Family: "f"})
	annOnly := rightsList("ann", "admin")
	for _, c := range []struct {
		as       *authz.Subject
		table    string
		from, to []api.PrincipalRights
		want     error
	}{
		{bob, "t", annOnly, rightsList("bob", "admin"), api.CodeTableNotFound},
		{ann, "", rightsList("admin", "admin"), annOnly, rpc.CodePermissionDenied},
		{ann, "u", nil, annOnly, api.CodeTableNotFound},
		{ann, "t", rightsList("ann", "admin", "bob", "read"), annOnly, api.CodeGrantsChanged},
		{ann, "t", nil, annOnly, api.CodeGrantsChanged},
		{ann, "t", rightsList("ann", "read,write,admin"), annOnly, api.CodeGrantsChanged},
		{ann, "t", rightsList("bob", "admin"), annOnly, api.CodeGrantsChanged},
		{ann, "t", annOnly, rightsList("eve", "read"), api.CodeUserNotFound},
		{ann, "t", annOnly, rightsList("bob", "read", "bob", "write"), rpc.CodeBadRequest},
		{ann, "t", annOnly, rightsList("bob", "own"), rpc.CodeBadRequest},
		{ann, "t", annOnly, rightsList("bob", "monitor"), rpc.CodeBadRequest},
		{ann, "t", annOnly, rightsList("bob", "read,write", "ann", "admin", acl.Everyone, "read"), nil},
		{ann, "t", rightsList(acl.Everyone, "read", "ann", "admin", "bob", "read,write"), rightsList("bob", "admin"), nil}, // without ann
		{ann, "t", rightsList("bob", "admin"), annOnly, api.CodeTableNotFound},
		{admin, "", rightsList("admin", "admin"), rightsList("bob", "read"), api.CodeLastAdmin},
		{admin, "", rightsList("admin", "admin"), rightsList("admin", "admin", "bob", "monitor"), nil},
	} {
		before := m.epoch()
		err := m.call(c.as, api.MethodSetGrants, &api.SetGrantsRequest{Table: c.table, From: c.from, To: c.to})
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || err == nil && m.epoch() == before {
			t.Errorf("table %q, from %v to %v: %v, want %v", c.table, c.from, c.to, err, c.want)
		}
	}
	want := []string{"admin / admin", "bob / monitor", "bob t/ admin", "carl t/f read"}
	if got, err := m.grants(admin, &api.ListGrantsRequest{}); err != nil || !slices.Equal(got, want) {
		t.Errorf("grants %q, %v, want %q", got, err, want)
	}
}

// TestSetGrantsAtOnce: of administrators that replace the same grants at the same time one succeeds, and each change is as a whole.
func TestSetGrantsAtOnce(t *testing.T) {
	t.Parallel()
	m, ann := withGrants(t)
	from := rightsList("ann", "admin")
	for round := range 10 {
		var made atomic.Int64
		var calls sync.WaitGroup
		to := make([][]api.PrincipalRights, 4)
		for i := range to {
			to[i] = rightsList("ann", "admin", "bob", []string{"read", "write"}[i%2], "carl", []string{"read", "write"}[i/2])
			if slices.Equal(to[i], from) { // it would change nothing
				to[i] = rightsList("ann", "admin", acl.Everyone, "read")
			}
			calls.Go(func() {
				switch err := m.call(ann, api.MethodSetGrants, &api.SetGrantsRequest{Table: "t", From: from, To: to[i]}); {
				case err == nil:
					made.Add(1)
				case !errors.Is(err, api.CodeGrantsChanged):
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if made.Load() != 1 {
			t.Fatalf("round %d: %d changes of the same grants were made", round, made.Load())
		}
		got, err := m.grants(ann, &api.ListGrantsRequest{Table: "t"})
		i := slices.IndexFunc(to, func(all []api.PrincipalRights) bool {
			var lines []string
			for _, g := range all {
				lines = append(lines, fmt.Sprintf("%s t/ %s", g.Principal, g.Rights))
			}
			return slices.Equal(slices.Sorted(slices.Values(lines)), got)
		})
		if err != nil || i < 0 {
			t.Fatalf("round %d: %q, %v, want one of %v", round, got, err, to)
		}
		from = to[i]
	}
}
