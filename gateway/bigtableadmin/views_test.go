package bigtableadmin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

const viewed = parent + "/tables/t"

// viewedCluster has the table t with the families f and g.
func viewedCluster(t *testing.T) *fakeCluster {
	t.Helper()
	s, err := table.NewSchema("t", 1).Apply(table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"})
	if err != nil {
		t.Fatal(err)
	}
	return &fakeCluster{tables: map[string]*table.Schema{"t": s}}
}

// subset returns the definition of a view with rows of some prefixes, and columns of f.
func subset(qualifier string, prefixes ...string) *adminpb.AuthorizedView {
	s := &adminpb.AuthorizedView_SubsetView{FamilySubsets: map[string]*adminpb.AuthorizedView_FamilySubsets{"f": {Qualifiers: [][]byte{[]byte(qualifier)}, QualifierPrefixes: [][]byte{[]byte("p")}}}}
	for _, p := range prefixes {
		s.RowPrefixes = append(s.RowPrefixes, []byte(p))
	}
	return &adminpb.AuthorizedView{AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: s}}
}

// finished returns the view in an operation that is done, whose metadata is of the type of about.
func finished(t *testing.T, op *longrunningpb.Operation, err error, about proto.Message) *adminpb.AuthorizedView {
	t.Helper()
	v := &adminpb.AuthorizedView{}
	if err != nil {
		t.Fatal(err)
	}
	if err := op.GetResponse().UnmarshalTo(v); err != nil || !op.Done {
		t.Fatalf("%v, %v", op, err)
	}
	if err := op.Metadata.UnmarshalTo(about); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAuthorizedViews: views are created, listed in pages, read with as much detail as requested, and deleted.
func TestAuthorizedViews(t *testing.T) {
	s, ctx := viewedCluster(t).service(), t.Context()
	for _, id := range []string{"b", "a", "c"} {
		about := &adminpb.CreateAuthorizedViewMetadata{}
		v, err := s.CreateAuthorizedView(ctx, &adminpb.CreateAuthorizedViewRequest{Parent: viewed, AuthorizedViewId: id, AuthorizedView: subset("q", "y", "x", "xx")})
		made := finished(t, v, err, about)
		if made.Name != viewed+"/authorizedViews/"+id || made.Etag == "" || len(made.GetSubsetView().RowPrefixes) != 2 || about.OriginalRequest.AuthorizedViewId != id || about.FinishTime == nil {
			t.Errorf("%v, %v", made, about)
		}
	}
	var listed []string
	token := ""
	for {
		page, err := s.ListAuthorizedViews(ctx, &adminpb.ListAuthorizedViewsRequest{Parent: viewed, PageSize: 2, PageToken: token})
		if err != nil || len(page.AuthorizedViews) > 2 {
			t.Fatalf("%v, %v", page, err)
		}
		for _, v := range page.AuthorizedViews {
			listed = append(listed, strings.TrimPrefix(v.Name, viewed+"/authorizedViews/"))
			if v.Etag != "" || v.AuthorizedView != nil {
				t.Errorf("more than a name: %v", v)
			}
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if !slices.Equal(listed, []string{"a", "b", "c"}) {
		t.Errorf("listed %q", listed)
	}
	for detail, want := range map[adminpb.AuthorizedView_ResponseView]string{
		adminpb.AuthorizedView_NAME_ONLY: "false false", adminpb.AuthorizedView_BASIC: "true false", adminpb.AuthorizedView_FULL: "true true", adminpb.AuthorizedView_RESPONSE_VIEW_UNSPECIFIED: "true true",
	} {
		v, err := s.GetAuthorizedView(ctx, &adminpb.GetAuthorizedViewRequest{Name: viewed + "/authorizedViews/a", View: detail})
		if got := fmt.Sprint(v.GetEtag() != "", v.GetSubsetView() != nil); err != nil || got != want {
			t.Errorf("%v: %v, %v, want %s", detail, v, err, want)
		}
		page, err := s.ListAuthorizedViews(ctx, &adminpb.ListAuthorizedViewsRequest{Parent: viewed, View: detail})
		if detail == adminpb.AuthorizedView_RESPONSE_VIEW_UNSPECIFIED {
			want = "false false"
		}
		if err != nil || fmt.Sprint(page.AuthorizedViews[0].Etag != "", page.AuthorizedViews[0].GetSubsetView() != nil) != want {
			t.Errorf("%v in a list: %v, %v, want %s", detail, page, err, want)
		}
	}
	v, err := s.GetAuthorizedView(ctx, &adminpb.GetAuthorizedViewRequest{Name: viewed + "/authorizedViews/a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteAuthorizedView(ctx, &adminpb.DeleteAuthorizedViewRequest{Name: v.Name, Etag: v.Etag}); err != nil {
		t.Error(err)
	}
	if _, err := s.GetAuthorizedView(ctx, &adminpb.GetAuthorizedViewRequest{Name: v.Name}); status.Code(err) != codes.NotFound {
		t.Errorf("deleted: %v", err)
	}
}

// TestAuthorizedViewErrors: requests that are wrong have the codes of Google's documentation.
func TestAuthorizedViewErrors(t *testing.T) {
	f := viewedCluster(t)
	s, ctx := f.service(), t.Context()
	strict := New(Config{Open: s.cfg.Open, StrictLimits: true})
	create := func(s *Service, parent, id string, v *adminpb.AuthorizedView) error {
		_, err := s.CreateAuthorizedView(ctx, &adminpb.CreateAuthorizedViewRequest{Parent: parent, AuthorizedViewId: id, AuthorizedView: v})
		return err
	}
	protected := subset("q", "x")
	protected.DeletionProtection = true
	if err := create(s, viewed, "v", protected); err != nil {
		t.Fatal(err)
	}
	unknown := &adminpb.AuthorizedView{AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: &adminpb.AuthorizedView_SubsetView{FamilySubsets: map[string]*adminpb.AuthorizedView_FamilySubsets{"h": {}}}}}
	del := func(name, etag string) error {
		_, err := s.DeleteAuthorizedView(ctx, &adminpb.DeleteAuthorizedViewRequest{Name: name, Etag: etag})
		return err
	}
	get := func(name string) error {
		_, err := s.GetAuthorizedView(ctx, &adminpb.GetAuthorizedViewRequest{Name: name})
		return err
	}
	list := func(parent string, size int32) error {
		_, err := s.ListAuthorizedViews(ctx, &adminpb.ListAuthorizedViewsRequest{Parent: parent, PageSize: size})
		return err
	}
	_, drop := s.DeleteTable(ctx, &adminpb.DeleteTableRequest{Name: viewed})
	for what, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"exists":                {create(s, viewed, "v", subset("q")), codes.AlreadyExists},
		"no table":              {create(s, parent+"/tables/x", "v", subset("q")), codes.NotFound},
		"bad parent":            {create(s, parent, "v", subset("q")), codes.InvalidArgument},
		"bad id":                {create(s, viewed, "a b", subset("q")), codes.InvalidArgument},
		"no id":                 {create(strict, viewed, "", subset("q")), codes.InvalidArgument},
		"no definition":         {create(s, viewed, "w", nil), codes.InvalidArgument},
		"no family":             {create(s, viewed, "w", unknown), codes.NotFound},
		"too large":             {create(s, viewed, "w", subset("q", strings.Repeat("x", table.ViewBytesMax))), codes.InvalidArgument},
		"a wide id":             {create(s, viewed, "-w", subset("q")), codes.OK},
		"a strict id":           {create(strict, viewed, "-w", subset("q")), codes.InvalidArgument},
		"a long id":             {create(strict, viewed, strings.Repeat("w", 51), subset("q")), codes.InvalidArgument},
		"delete what is not":    {del(viewed+"/authorizedViews/x", ""), codes.NotFound},
		"delete what protected": {del(viewed+"/authorizedViews/v", ""), codes.FailedPrecondition},
		"delete an older one":   {del(viewed+"/authorizedViews/v", "x"), codes.Aborted},
		"delete a table":        {del(viewed, ""), codes.InvalidArgument},
		"drop the table":        {drop, codes.FailedPrecondition},
		"get what is not":       {get(viewed + "/authorizedViews/x"), codes.NotFound},
		"get of no table":       {get(parent + "/tables/x/authorizedViews/v"), codes.NotFound},
		"list of no table":      {list(parent+"/tables/x", 0), codes.NotFound},
		"list a negative page":  {list(viewed, -1), codes.InvalidArgument},
	} {
		if status.Code(c.err) != c.want {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
}

// TestUpdateAuthorizedView: an update changes what its mask has, of the view that its etag names, and removes nothing unless it has to.
func TestUpdateAuthorizedView(t *testing.T) {
	s, ctx := viewedCluster(t).service(), t.Context()
	name := viewed + "/authorizedViews/v"
	op, err := s.CreateAuthorizedView(ctx, &adminpb.CreateAuthorizedViewRequest{Parent: viewed, AuthorizedViewId: "v", AuthorizedView: subset("q", "x", "y")})
	made := finished(t, op, err, &adminpb.CreateAuthorizedViewMetadata{})
	protect := &adminpb.AuthorizedView{DeletionProtection: true}
	for _, c := range []struct {
		what   string
		view   *adminpb.AuthorizedView
		etag   string
		mask   []string
		force  bool
		want   codes.Code
		rows   int
		shield bool
	}{
		{"an old etag", protect, "x", []string{"deletion_protection"}, false, codes.Aborted, 0, false},
		{"an old etag and fewer rows", subset("q", "x"), "x", nil, false, codes.Aborted, 0, false},
		{"an unknown field", protect, "", []string{"etag"}, false, codes.InvalidArgument, 0, false},
		{"no definition", protect, "", []string{"subset_view"}, false, codes.InvalidArgument, 0, false},
		{"protect", protect, made.Etag, []string{"deletion_protection"}, false, codes.OK, 2, true},
		{"with the etag before", protect, made.Etag, []string{"deletion_protection"}, false, codes.Aborted, 0, false},
		{"more rows, without a mask", subset("q", "x", "y", "z"), "", nil, false, codes.OK, 3, true},
		{"fewer rows", subset("q", "x"), "", []string{"subset_view"}, false, codes.FailedPrecondition, 0, false},
		{"another column", subset("r", "x", "y", "z"), "", []string{"subset_view"}, false, codes.FailedPrecondition, 0, false},
		{"fewer rows, by force", subset("q", "x"), "", []string{"subset_view"}, true, codes.OK, 1, true},
		{"everything", subset("q", "x", "y"), "", []string{"*"}, false, codes.OK, 2, false},
	} {
		req := &adminpb.UpdateAuthorizedViewRequest{AuthorizedView: proto.Clone(c.view).(*adminpb.AuthorizedView), IgnoreWarnings: c.force}
		req.AuthorizedView.Name, req.AuthorizedView.Etag = name, c.etag
		if c.mask != nil {
			req.UpdateMask = &fieldmaskpb.FieldMask{Paths: c.mask}
		}
		op, err := s.UpdateAuthorizedView(ctx, req)
		if status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
			continue
		}
		if err != nil {
			continue
		}
		v := finished(t, op, err, &adminpb.UpdateAuthorizedViewMetadata{})
		if len(v.GetSubsetView().RowPrefixes) != c.rows || v.DeletionProtection != c.shield || len(v.GetSubsetView().FamilySubsets["f"].QualifierPrefixes) != 1 {
			t.Errorf("%s: %v", c.what, v)
		}
	}
	none := &adminpb.UpdateAuthorizedViewRequest{AuthorizedView: &adminpb.AuthorizedView{Name: viewed + "/authorizedViews/x", DeletionProtection: true}}
	if _, err := s.UpdateAuthorizedView(ctx, none); status.Code(err) != codes.NotFound {
		t.Errorf("a view that does not exist: %v", err)
	}
	if _, err := s.UpdateAuthorizedView(ctx, &adminpb.UpdateAuthorizedViewRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nothing: %v", err)
	}
}

// TestIamViews (GA3): the policy of a view is the grants on it, without an administrator. Permissions on a view are those on it and on its table.
func TestIamViews(t *testing.T) {
	cluster := viewedCluster(t)
	if _, err := cluster.Alter(t.Context(), "t", table.Change{Op: table.ChangeAddView, View: &table.ViewChange{View: *table.NewView("v", [][]byte{{}})}}); err != nil {
		t.Fatal(err)
	}
	f := &fakeRights{all: []client.Grant{
		{Principal: "ann", Table: "t", View: "v", Rights: "read,write"}, {Principal: "bob", Table: "t", View: "w", Rights: "read"},
		{Principal: "eve", Table: "t", Rights: "read"}, {Principal: "zoe", Table: "t", Family: "f", Rights: "write"},
	}}
	s := New(Config{Open: cluster.service().cfg.Open, OpenRights: f.service().cfg.OpenRights})
	of := viewed + "/authorizedViews/v"
	p, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: of})
	if err != nil || bindings(p) != "bigtable.user=user:ann" {
		t.Fatalf("%s, %v", bindings(p), err)
	}
	p.Bindings = []*iampb.Binding{{Role: "roles/bigtable.reader", Members: []string{"user:ann", "user:bob"}}}
	if p, err = s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: of, Policy: p}); err != nil || bindings(p) != "bigtable.reader=user:ann+user:bob" {
		t.Errorf("%s, %v", bindings(p), err)
	}
	if want := []string{"+ann t/v read", "+bob t/v read", "-ann t/v read,write"}; !slices.Equal(f.log, want) || len(f.all) != 5 {
		t.Errorf("calls %q, want %q; grants %+v", f.log, want, f.all)
	}
	p.Bindings[0].Role = "roles/bigtable.admin"
	if _, err := s.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: of, Policy: p}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an administrator of a view: %v", err)
	}
	if _, err := s.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: viewed + "/authorizedViews/w"}); status.Code(err) != codes.NotFound {
		t.Errorf("a view that does not exist: %v", err)
	}
	ask := []string{"bigtable.authorizedViews.get", "bigtable.authorizedViews.readRows", "bigtable.authorizedViews.mutateRows", "bigtable.authorizedViews.update", "bigtable.tables.readRows"}
	for _, tc := range []struct {
		grant client.Grant
		want  int // of the permissions on the view, from the first
	}{
		{client.Grant{Table: "t", View: "v", Rights: "read"}, 2},
		{client.Grant{Table: "t", View: "v", Rights: "read,write"}, 3},
		{client.Grant{Table: "t", View: "w", Rights: "read,write"}, 1},
		{client.Grant{Table: "t", Rights: "read,write"}, 3},
		{client.Grant{Rights: "admin"}, 4},
	} {
		f.me = client.Whoami{Kind: api.KindPrincipal, Grants: []client.Grant{tc.grant}}
		got, err := s.TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: of, Permissions: ask})
		if err != nil || !slices.Equal(got.Permissions, ask[:tc.want]) {
			t.Errorf("%+v: %v, %v", tc.grant, got, err)
		}
	}
	f.me.Grants = []client.Grant{{Table: "t", View: "v", Rights: "read,write"}}
	got, err := s.TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: viewed, Permissions: ask})
	if err != nil || !slices.Equal(got.Permissions, ask[:1]) {
		t.Errorf("on the table: %v, %v", got, err)
	}
}
