package users

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes/changestest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// grants returns the listed grants, a line for each.
func (m *master) grants(as *authz.Subject, r *api.ListGrantsRequest) (lines []string, err error) {
	m.t.Helper()
	var all api.Grants
	err = m.port.Ask(m.t, as, api.MethodListGrants, r.Append, all.Decode)
	for _, g := range all.Grants {
		lines = append(lines, fmt.Sprintf("%s %s/%s %s", g.Principal, g.Table, g.Family, g.Rights))
	}
	return lines, err
}

// withGrants returns a master with the tables t and u of the families f and g. ann administers t.
func withGrants(t *testing.T) (m *master, ann *authz.Subject) {
	t.Helper()
	m = newMaster(t)
	m.addTable("t", 100, "f", "g")
	m.addTable("u", 200, "f", "g")
	for _, name := range []string{"bob", "carl"} {
		_, _ = m.addToken(name)
	}
	ann, _ = m.addToken("ann")
	m.must(api.MethodGrant, &api.GrantRequest{Principal: "ann", Rights: "admin", Table: "t"})
	return m, ann
}

// TestGrants: administrators grant and revoke rights on what they administer, and no other caller does. A request that cannot be meant
// is rejected. Grants are in force, and listed, when the request has returned.
func TestGrants(t *testing.T) {
	t.Parallel()
	m, ann := withGrants(t)
	admin, bob := changestest.Admin(), changestest.User("bob", m.record("bob").Generation)
	grant := func(principal, rights, table, family string) *api.GrantRequest {
		return &api.GrantRequest{Principal: principal, Rights: rights, Table: table, Family: family}
	}
	for _, c := range []struct {
		as     *authz.Subject
		method string
		r      *api.GrantRequest
		want   error
	}{
		{ann, api.MethodGrant, grant("bob", "read,write", "t", ""), nil},
		{ann, api.MethodGrant, grant("bob", "write", "t", "f"), nil},
		{ann, api.MethodGrant, grant(acl.Everyone, "read", "t", "g"), nil},
		{ann, api.MethodRevoke, grant("bob", "write", "t", ""), nil},
		{ann, api.MethodGrant, grant("bob", "read", "u", ""), api.CodeTableNotFound}, // which ann does not see
		{ann, api.MethodGrant, grant("bob", "read", "", ""), rpc.CodePermissionDenied},
		{bob, api.MethodGrant, grant("bob", "admin", "t", ""), rpc.CodePermissionDenied},
		{bob, api.MethodRevoke, grant("ann", "admin", "t", ""), rpc.CodePermissionDenied},
		{bob, api.MethodGrant, grant("bob", "admin", "x", ""), api.CodeTableNotFound},
		{admin, api.MethodGrant, grant("bob", "read", "u", "f"), nil},
		{admin, api.MethodGrant, grant("bob", "monitor", "", ""), nil},
		{admin, api.MethodGrant, grant("eve", "read", "t", ""), api.CodeUserNotFound},
		{admin, api.MethodGrant, grant("bob", "read", "x", ""), api.CodeTableNotFound},
		{admin, api.MethodGrant, grant("bob", "read", "METADATA", ""), api.CodeSystemTable},
		{admin, api.MethodGrant, grant("bob", "read", "t", "h"), api.CodeFamilyNotFound},
		{admin, api.MethodGrant, grant("bob", "read", "", "f"), rpc.CodeBadRequest},
		{admin, api.MethodGrant, grant("bob", "own", "t", ""), rpc.CodeBadRequest},
		{admin, api.MethodGrant, grant("bob", "monitor", "t", ""), rpc.CodeBadRequest},
		{admin, api.MethodRevoke, grant("carl", "read", "t", ""), api.CodeGrantNotFound},
		{admin, api.MethodRevoke, grant("bob", "write", "t", ""), api.CodeGrantNotFound},
		{admin, api.MethodRevoke, grant("ann", "read", "t", ""), rpc.CodeBadRequest}, // admin implies it
		{changestest.AsNode(), api.MethodGrant, grant("carl", "read", "t", ""), nil},
	} {
		if err := m.call(c.as, c.method, c.r); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			name, _, _ := c.as.Principal()
			t.Errorf("%s %+v by %s: %v, want %v", c.method, c.r, name, err, c.want)
		}
	}
	all := []string{"admin / admin", "bob / monitor", "* t/g read", "ann t/ admin", "bob t/ read", "bob t/f write", "carl t/ read", "bob u/f read"}
	for _, c := range []struct {
		as   *authz.Subject
		r    *api.ListGrantsRequest
		want []string
		err  error
	}{
		{admin, &api.ListGrantsRequest{}, all, nil},
		{admin, &api.ListGrantsRequest{Principal: "bob"}, []string{"bob / monitor", "bob t/ read", "bob t/f write", "bob u/f read"}, nil},
		{admin, &api.ListGrantsRequest{Principal: "bob", Table: "u"}, []string{"bob u/f read"}, nil},
		{ann, &api.ListGrantsRequest{Table: "t"}, all[2:7], nil},
		{ann, &api.ListGrantsRequest{}, nil, rpc.CodePermissionDenied},
		{ann, &api.ListGrantsRequest{Table: "u"}, nil, api.CodeTableNotFound},
		{bob, &api.ListGrantsRequest{Table: "t"}, nil, rpc.CodePermissionDenied},
	} {
		if got, err := m.grants(c.as, c.r); !slices.Equal(got, c.want) || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%+v: %q, %v; want %q, %v", c.r, got, err, c.want, c.err)
		}
	}
	m.Put(acl.TableFile(200), (&acl.Policy{Table: 200, Grants: []acl.Grant{{Principal: "gone", Rights: acl.Read}}}).Encode())
	m.must(api.MethodRevoke, grant("gone", "read", "u", "")) // of a user that does not exist
	me, err := m.whoami(bob)
	if err != nil || len(me.Grants) != 4 {
		t.Errorf("bob has %+v, %v", me, err)
	}
	if me, err := m.whoami(changestest.AsNode()); err != nil || me.Kind != api.KindNode || len(me.Grants) != 0 {
		t.Errorf("a node: %+v, %v", me, err)
	}
}

// TestEveryGrantIsAnEpoch (I12): when a change of grants has returned, another epoch of rights has begun, even if the grant was there
// before.
func TestEveryGrantIsAnEpoch(t *testing.T) {
	t.Parallel()
	m, ann := withGrants(t)
	for _, method := range []string{api.MethodGrant, api.MethodGrant, api.MethodRevoke} {
		before := m.epoch()
		if err := m.call(ann, method, &api.GrantRequest{Principal: "bob", Rights: "read", Table: "t"}); err != nil || m.epoch() == before {
			t.Errorf("%s: %v, epoch %d after %d", method, err, m.epoch(), before)
		}
	}
}

// TestGrantsMax: a table has at most acl.GrantsMax grants.
func TestGrantsMax(t *testing.T) {
	t.Parallel()
	m, ann := withGrants(t)
	p := &acl.Policy{Table: 100}
	for i := range acl.GrantsMax - 1 {
		p.Grants = append(p.Grants, acl.Grant{Principal: fmt.Sprintf("u%05d", i), Rights: acl.Read})
	}
	p, err := p.Grant(acl.Grant{Principal: "ann", Rights: acl.Admin})
	if err != nil {
		t.Fatal(err)
	}
	m.Put(acl.TableFile(100), p.Encode())
	m.Put(acl.EpochFile, []byte("next"))
	if err := m.call(ann, api.MethodGrant, &api.GrantRequest{Principal: "bob", Rights: "read", Table: "t"}); !errors.Is(err, api.CodeLimitExceeded) {
		t.Errorf("one more: %v", err)
	}
	if err := m.call(ann, api.MethodGrant, &api.GrantRequest{Principal: "ann", Rights: "read", Table: "t"}); err != nil {
		t.Errorf("more rights in a grant that is there: %v", err)
	}
}

// TestGrantsOfTables: the creator's grant is written before the table exists, once. A dropped table's grants are removed with it, and a
// dropped family's with the family.
func TestGrantsOfTables(t *testing.T) {
	t.Parallel()
	m, _ := withGrants(t)
	ctx := t.Context()
	if err := m.GrantCreator(ctx, "bob", 300); err != nil {
		t.Fatal(err)
	}
	if p, _, err := m.policies.get(ctx, 300); err != nil || !p.Rights("bob").Has(acl.Admin) {
		t.Errorf("the creator has %v, %v", p.Rights("bob"), err)
	}
	if err := m.GrantCreator(ctx, "carl", 300); err == nil {
		t.Error("a second creator of a table")
	}
	m.ForgetGrants(ctx, 300)
	m.ForgetGrants(ctx, 300)
	if m.Generation(acl.TableFile(300)) != 0 {
		t.Error("grants of a dropped table are left")
	}
	for _, family := range []string{"", "f", "g"} {
		m.must(api.MethodGrant, &api.GrantRequest{Principal: "bob", Rights: "read", Table: "t", Family: family})
	}
	s, _, err := m.Node.Catalog.Schema(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	before, kept := m.epoch(), m.Generation(acl.TableFile(100))
	m.PruneGrants(ctx, s)
	if m.epoch() != before || m.Generation(acl.TableFile(100)) != kept {
		t.Error("grants are written although no family was dropped")
	}
	dropped := s.Family("f").ID
	if s, err = s.DropFamily("f"); err != nil {
		t.Fatal(err)
	}
	m.PruneGrants(ctx, s)
	p, _, err := m.policies.get(ctx, 100)
	if err != nil || m.epoch() == before || len(p.Grants) != 3 || slices.ContainsFunc(p.Grants, func(g acl.Grant) bool { return g.Principal == "bob" && g.Family == dropped }) {
		t.Errorf("without the family: %+v, %v", p, err)
	}
	if s, err = s.Apply(table.FamilySpec{Name: "f"}); err != nil { // another family of that name
		t.Fatal(err)
	}
	m.PruneGrants(ctx, s)
	if p, _, err := m.policies.get(ctx, 100); err != nil || len(p.Grants) != 3 {
		t.Errorf("with another family of the name: %+v, %v", p, err)
	}
}
