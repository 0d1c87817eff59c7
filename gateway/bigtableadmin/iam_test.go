package bigtableadmin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// fakeRights has grants in memory, and the caller ann.
type fakeRights struct {
	all  []client.Grant
	log  []string
	fail map[string]error // by principal
	me   client.Whoami
	// changing is called before each Set.
	changing func()
	// denied is the error of Find. Otherwise the only backup is "b".
	denied error
}

func (f *fakeRights) Find(_ context.Context, id string) (*client.Backup, error) {
	switch {
	case f.denied != nil:
		return nil, f.denied
	case id != "b":
		return nil, fmt.Errorf("backup %q: %w", id, client.ErrNoBackup)
	}
	return &client.Backup{ID: id}, nil
}

func (f *fakeRights) Whoami(context.Context) (*client.Whoami, error) { return &f.me, nil }

func (f *fakeRights) List(context.Context, string, string) ([]client.Grant, error) {
	return f.all, f.fail["list"]
}

// place returns what a grant is on.
func place(g client.Grant) string { return strings.TrimSuffix(g.Table+"/"+g.View, "/") }

// Set replaces grants, and logs those that differ.
func (f *fakeRights) Set(_ context.Context, table, view string, from, to []client.Grant) error {
	if f.changing != nil {
		f.changing()
	}
	text := func(all []client.Grant) (texts []string) {
		for _, g := range all {
			if g.Table == "" {
				g.Table, g.View = table, view
			}
			texts = append(texts, fmt.Sprintf("%s %s %s", g.Principal, place(g), g.Rights))
		}
		return texts
	}
	isOfOther := func(g client.Grant) bool { return g.Table != table || g.View != view || g.Family != "" }
	had, before, after := slices.DeleteFunc(slices.Clone(f.all), isOfOther), text(from), text(to)
	if got := text(had); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(before))) {
		return api.ErrGrantsChanged
	}
	for _, g := range to {
		if err := f.fail[g.Principal]; err != nil {
			return err
		}
	}
	for _, g := range after {
		if !slices.Contains(before, g) {
			f.log = append(f.log, "+"+g)
		}
	}
	for _, g := range before {
		if !slices.Contains(after, g) {
			f.log = append(f.log, "-"+g)
		}
	}
	f.all = slices.DeleteFunc(slices.Clone(f.all), func(g client.Grant) bool { return !isOfOther(g) })
	for _, g := range to {
		f.all = append(f.all, client.Grant{Principal: g.Principal, Table: table, View: view, Rights: g.Rights})
	}
	return nil
}

func (f *fakeRights) service() *Service {
	cluster := &fakeCluster{tables: map[string]*table.Schema{"t": table.NewSchema("t", 1)}}
	return New(Config{Open: func(context.Context) (Tables, Nodes, error) { return cluster, fakeNodes{}, nil },
		OpenRights: func(context.Context) (Caller, Grants, error) { return f, f, nil }, OpenBackups: func(context.Context) (Backups, error) { return f, nil }})
}

const iamTable = parent + "/tables/t"

func bindings(p *iampb.Policy) string {
	var all []string
	for _, b := range p.GetBindings() {
		all = append(all, strings.TrimPrefix(b.Role, "roles/")+"="+strings.Join(b.Members, "+"))
	}
	return strings.Join(all, " ")
}

// TestIamPolicy (GA3): a policy is the grants on the table as a whole, and setting the policy that was read changes nothing.
func TestIamPolicy(t *testing.T) {
	f := &fakeRights{all: []client.Grant{
		{Principal: "ann", Table: "t", Rights: "admin"}, {Principal: "bob", Table: "t", Rights: "read,write"}, {Principal: "eve", Table: "t", Rights: "read"}, {Principal: "zac", Table: "t", Rights: "read,write,admin"},
		{Principal: "wim", Table: "t", Rights: "write"}, {Principal: "*", Table: "t", Rights: "read"}, {Principal: "eve", Table: "t", Family: "f", Rights: "write"},
		{Principal: "root", Rights: "admin"}, {Principal: "bob", Table: "u", Rights: "admin"},
	}}
	s := f.service()
	p, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: iamTable})
	want := "bigtable.admin=user:ann+user:zac bigtable.reader=allAuthenticatedUsers+user:eve bigtable.user=user:bob stele.writer=user:wim"
	if err != nil || bindings(p) != want || len(p.Etag) == 0 {
		t.Fatalf("%s, %v\nwant %s", bindings(p), err, want)
	}
	again, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: iamTable, Policy: p})
	if err != nil || bindings(again) != want || len(f.log) > 0 || string(again.Etag) != string(p.Etag) {
		t.Errorf("%s, %v, calls %v", bindings(again), err, f.log)
	}
	next := &iampb.Policy{Etag: p.Etag, Bindings: []*iampb.Binding{{Role: "roles/bigtable.user", Members: []string{"user:ann", "user:zoe"}},
		{Role: "roles/bigtable.reader", Members: []string{"user:zoe", "user:bob"}}}}
	if p, err = s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: iamTable, Policy: next}); err != nil {
		t.Fatal(err)
	}
	if want := "bigtable.reader=user:bob bigtable.user=user:ann+user:zoe"; bindings(p) != want {
		t.Errorf("%s, want %s", bindings(p), want)
	}
	if want := []string{"+ann t read,write", "+bob t read", "+zoe t read,write", "-* t read", "-ann t admin", "-bob t read,write", "-eve t read", "-wim t write", "-zac t read,write,admin"}; !slices.Equal(f.log, want) {
		t.Errorf("calls %q, want %q", f.log, want)
	}
	if _, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: iamTable, Policy: next}); status.Code(err) != codes.Aborted {
		t.Errorf("with the etag of an earlier policy: %v", err)
	}
	if len(f.all) != 6 { // three of the table, and those that are not part of its policy
		t.Errorf("grants %+v", f.all)
	}
}

// onlyAdmin rejects requests of a caller without the right admin.
type onlyAdmin struct{ *fakeRights }

func (f onlyAdmin) List(ctx context.Context, table, principal string) ([]client.Grant, error) {
	if !slices.ContainsFunc(f.all, func(g client.Grant) bool { return g.Principal == f.me.Name && parseRights(g.Rights)&mayAdmin != 0 }) {
		return nil, client.ErrPermission
	}
	return f.fakeRights.List(ctx, table, principal)
}

// TestIamRevokesCaller: an administrator that is not in the new policy sets it as a whole, and gets it as the answer.
func TestIamRevokesCaller(t *testing.T) {
	f := &fakeRights{me: client.Whoami{Kind: api.KindPrincipal, Name: "ann"}, all: []client.Grant{
		{Principal: "ann", Table: "t", Rights: "admin"}, {Principal: "bob", Table: "t", Rights: "read,write"}, {Principal: "zac", Table: "t", Rights: "admin"}}}
	s := f.service()
	s.cfg.OpenRights = func(context.Context) (Caller, Grants, error) { return f, onlyAdmin{f}, nil }
	policy := &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/bigtable.admin", Members: []string{"user:eve"}}}}
	p, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: iamTable, Policy: policy})
	if err != nil || bindings(p) != "bigtable.admin=user:eve" {
		t.Errorf("%s, %v", bindings(p), err)
	}
	if want := []string{"+eve t admin", "-ann t admin", "-bob t read,write", "-zac t admin"}; !slices.Equal(f.log, want) {
		t.Errorf("changes %q, want %q", f.log, want)
	}
	f.me.Name = "eve" // the etag is that of the policy
	again, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: iamTable})
	if err != nil || string(again.GetEtag()) != string(p.GetEtag()) {
		t.Errorf("etag %x, %v, want %x", again.GetEtag(), err, p.GetEtag())
	}
}

// TestIamRaces: if the grants change between the read of a policy and its replacement, a policy with an etag is not set, and one without is set anew.
func TestIamRaces(t *testing.T) {
	races := 0
	f := &fakeRights{}
	f.changing = func() {
		if races > 0 {
			races--
			f.all = append(f.all, client.Grant{Principal: fmt.Sprintf("new%d", races), Table: "t", Rights: "read"})
		}
	}
	s := f.service()
	set := func(etag []byte) error {
		policy := &iampb.Policy{Etag: etag, Bindings: []*iampb.Binding{{Role: "roles/bigtable.user", Members: []string{"user:ann"}}}}
		_, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: iamTable, Policy: policy})
		return err
	}
	for _, k := range []struct {
		races    int
		withEtag bool
		want     codes.Code
	}{{1, true, codes.Aborted}, {0, true, codes.OK}, {setAttempts - 1, false, codes.OK}, {setAttempts, false, codes.Aborted}} {
		var etag []byte
		if f.all, races = []client.Grant{{Principal: "bob", Table: "t", Rights: "read"}}, k.races; k.withEtag {
			p, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: iamTable})
			if err != nil {
				t.Fatal(err)
			}
			etag = p.Etag
		}
		err := set(etag)
		if set := len(f.all) == 1 && f.all[0].Principal == "ann"; status.Code(err) != k.want || set != (k.want == codes.OK) {
			t.Errorf("%+v: %v, grants %+v", k, err, f.all)
		}
	}
	for _, etag := range [][]byte{nil, etagOf(map[string]rights{"bob": mayRead})} {
		f.all, f.fail = []client.Grant{{Principal: "bob", Table: "t", Rights: "read"}}, map[string]error{"ann": &client.AmbiguousError{Err: context.DeadlineExceeded}}
		want := map[bool]codes.Code{true: codes.Unavailable, false: codes.Unknown}[etag == nil]
		if err := set(etag); status.Code(err) != want {
			t.Errorf("an unknown outcome with the etag %x: %v, want %v", etag, err, want)
		}
	}
}

func TestIamErrors(t *testing.T) {
	f := &fakeRights{fail: map[string]error{"unknown": client.ErrNoUser, "last": client.ErrLastAdmin}}
	binding := func(role string, members ...string) *iampb.Policy {
		return &iampb.Policy{Bindings: []*iampb.Binding{{Role: role, Members: members}}}
	}
	for _, tc := range []struct {
		resource string
		policy   *iampb.Policy
		want     codes.Code
	}{
		{iamTable, binding("roles/owner", "user:ann"), codes.InvalidArgument},
		{iamTable, binding("roles/bigtable.reader", "group:ann"), codes.InvalidArgument},
		{iamTable, binding("roles/bigtable.reader", "user:*"), codes.InvalidArgument},
		{iamTable, binding("roles/bigtable.reader", "user:"), codes.InvalidArgument},
		{iamTable, binding("roles/bigtable.reader", "user:unknown"), codes.InvalidArgument},
		{iamTable, binding("roles/bigtable.reader", "user:last"), codes.FailedPrecondition},
		{parent + "/tables/u", binding("roles/bigtable.reader", "user:ann"), codes.NotFound},
		{parent, binding("roles/bigtable.reader", "user:ann"), codes.InvalidArgument},
		{iamTable, nil, codes.OK},
	} {
		if _, err := f.service().SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: tc.resource, Policy: tc.policy}); status.Code(err) != tc.want {
			t.Errorf("%s, %v: %v, want %v", tc.resource, tc.policy, err, tc.want)
		}
	}
	f.fail["list"] = client.ErrOpenCluster
	if p, err := f.service().GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: iamTable}); err != nil || len(p.Bindings) > 0 {
		t.Errorf("of an open cluster: %v, %v", p, err)
	}
}

// TestIamPermissions: a caller has the permissions of its grants on the cluster and on the table, and all of them on an open cluster.
func TestIamPermissions(t *testing.T) {
	ask := []string{"bigtable.tables.readRows", "bigtable.tables.mutateRows", "bigtable.tables.get", "bigtable.tables.delete", "bigtable.tables.unknown"}
	for _, tc := range []struct {
		kind   string
		grants []client.Grant
		want   int // of the permissions, from the first
	}{
		{api.KindAnonymous, nil, 4},
		{api.KindPrincipal, []client.Grant{{Rights: "admin"}}, 4},
		{api.KindPrincipal, []client.Grant{{Table: "t", Rights: "read"}, {Table: "t", Rights: "write"}, {Table: "u", Rights: "admin"}}, 3},
	} {
		f := &fakeRights{me: client.Whoami{Kind: tc.kind, Grants: tc.grants}}
		got, err := f.service().TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: iamTable, Permissions: ask})
		if err != nil || !slices.Equal(got.Permissions, ask[:tc.want]) {
			t.Errorf("%+v: %v, %v", tc.grants, got, err)
		}
	}
	f := &fakeRights{me: client.Whoami{Kind: api.KindPrincipal, Grants: []client.Grant{{Table: "t", Family: "f", Rights: "read"}}}}
	got, err := f.service().TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: iamTable, Permissions: ask})
	if err != nil || !slices.Equal(got.Permissions, []string{"bigtable.tables.get"}) {
		t.Errorf("with a right on a family: %v, %v", got, err)
	}
	if _, err := f.service().TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: iamTable, Permissions: []string{"bigtable.*"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a wildcard: %v", err)
	}
}
