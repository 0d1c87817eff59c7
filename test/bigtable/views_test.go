package bigtable

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	tables "github.com/steledb/stele/table"
)

const (
	wholeTable = "projects/p/instances/i/tables/" + table
	viewOfA    = wholeTable + "/authorizedViews/v"
)

// fillViewed makes rows of which the view v has those that begin with a/, all columns of f, and the column n of g. Tablets end within the view, and outside.
func fillViewed(t *testing.T, c *client.Client) {
	t.Helper()
	for _, prefix := range []string{"a/", "b/", "y/"} {
		for i := range 10 {
			m := client.NewRowMutation(fmt.Sprintf("%s%d", prefix, i))
			for _, column := range []string{"f:q", "g:n", "g:secret"} {
				m.SetAt(column, 1000, []byte("1"))
			}
			if err := c.Table(table).Apply(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := tables.NewView("v", [][]byte{[]byte("a/")}, tables.ViewFamily{Name: "f", Prefixes: [][]byte{{}}}, tables.ViewFamily{Name: "g", Qualifiers: [][]byte{[]byte("n")}})
	other := tables.NewView("other", [][]byte{{}}, tables.ViewFamily{Name: "f", Prefixes: [][]byte{{}}})
	if _, err := c.Tables().Alter(t.Context(), table, tables.Change{Op: tables.ChangeAddView, View: &tables.ViewChange{View: *v}},
		tables.Change{Op: tables.ChangeAddView, View: &tables.ViewChange{View: *other}}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"a/5", "b/5"} {
		if _, err := c.Tablets().Split(t.Context(), table, at); err != nil {
			t.Fatal(err)
		}
	}
}

// attempt is a call about a table, or about a view of it, and what it revealed.
type attempt func(ctx context.Context, c bigtablepb.BigtableClient, table, view string) (string, error)

// collect returns what the messages of a stream show.
func collect[M any](s interface{ Recv() (*M, error) }, err error, show func(*M) string) (string, error) {
	var all []string
	for err == nil {
		var m *M
		if m, err = s.Recv(); err == nil {
			all = append(all, show(m))
		}
	}
	if err == io.EOF {
		err = nil
	}
	return strings.Join(all, " "), err
}

// readAttempt is a ReadRows that shows the keys and columns of rows, and the keys up to which rows were looked at.
func readAttempt(req *bigtablepb.ReadRowsRequest) attempt {
	return func(ctx context.Context, c bigtablepb.BigtableClient, table, view string) (string, error) {
		req.TableName, req.AuthorizedViewName = table, view
		s, err := c.ReadRows(ctx, req)
		return collect(s, err, func(m *bigtablepb.ReadRowsResponse) string {
			text := string(m.LastScannedRowKey)
			for _, chunk := range m.Chunks {
				text += string(chunk.RowKey) + string(chunk.Qualifier.GetValue())
			}
			return text
		})
	}
}

func sampleAttempt(ctx context.Context, c bigtablepb.BigtableClient, table, view string) (string, error) {
	s, err := c.SampleRowKeys(ctx, &bigtablepb.SampleRowKeysRequest{TableName: table, AuthorizedViewName: view})
	return collect(s, err, func(m *bigtablepb.SampleRowKeysResponse) string { return string(m.RowKey) })
}

// setIn returns mutations of a column that set it.
func setIn(family, qualifier string) []*bigtablepb.Mutation {
	return []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{
		FamilyName: family, ColumnQualifier: []byte(qualifier), TimestampMicros: 1000, Value: []byte("1")}}}}
}

// writeAttempts are all writes of a row, with mutations of a column.
func writeAttempts(row, family, qualifier string) map[string]attempt {
	key, mutations := []byte(row), setIn(family, qualifier)
	return map[string]attempt{
		"mutate": func(ctx context.Context, c bigtablepb.BigtableClient, table, view string) (string, error) {
			_, err := c.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: table, AuthorizedViewName: view, RowKey: key, Mutations: mutations})
			return "", err
		},
		"batch": func(ctx context.Context, c bigtablepb.BigtableClient, table, view string) (string, error) {
			s, err := c.MutateRows(ctx, &bigtablepb.MutateRowsRequest{TableName: table, AuthorizedViewName: view, Entries: []*bigtablepb.MutateRowsRequest_Entry{{RowKey: key, Mutations: mutations}}})
			if err != nil {
				return "", err
			}
			m, err := s.Recv()
			if err != nil {
				return "", err
			}
			return "", status.ErrorProto(m.Entries[0].Status)
		},
		"check": func(ctx context.Context, c bigtablepb.BigtableClient, table, view string) (string, error) {
			_, err := c.CheckAndMutateRow(ctx, &bigtablepb.CheckAndMutateRowRequest{TableName: table, AuthorizedViewName: view, RowKey: key, TrueMutations: mutations, FalseMutations: mutations})
			return "", err
		},
		"append": func(ctx context.Context, c bigtablepb.BigtableClient, table, view string) (string, error) {
			rule := &bigtablepb.ReadModifyWriteRule{FamilyName: family, ColumnQualifier: []byte(qualifier), Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{}}
			m, err := c.ReadModifyWriteRow(ctx, &bigtablepb.ReadModifyWriteRowRequest{TableName: table, AuthorizedViewName: view, RowKey: key, Rules: []*bigtablepb.ReadModifyWriteRule{rule}})
			return m.String(), err
		},
	}
}

// TestSecuredViews: a user with rights on a view alone reads and changes what the view has, and neither reads, changes nor learns anything else of
// the table, by any method.
func TestSecuredViews(t *testing.T) {
	s := startSecured(t)
	fillViewed(t, s.admin)
	ann := s.user("ann", "", "")
	for _, n := range s.nodes {
		conn, ctx := s.dial(n, nil), withToken(t.Context(), ann)
		c := bigtablepb.NewBigtableClient(conn)
		_, err := sampleAttempt(ctx, c, "", viewOfA)
		expectCode(t, "without a right", err, codes.NotFound)
	}
	if err := s.admin.Grants().Add(t.Context(), client.Grant{Principal: "ann", Rights: "read,write", Table: table, View: "v"}); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.nodes {
		conn, ctx := s.dial(n, nil), withToken(t.Context(), ann)
		c := bigtablepb.NewBigtableClient(conn)
		withinView(t, ctx, c)
		outsideView(t, ctx, c)
		refusedByTable(t, ctx, conn)
	}
	reader := s.admin.Table(table).Scan(t.Context())
	defer reader.Close()
	for reader.Next() {
		for _, cell := range reader.Row().Cells {
			if len(cell.Value) != 1 || string(cell.Qualifier) == "evil" {
				t.Errorf("row %s: %s:%s is %q", reader.Row().Key, cell.Family, cell.Qualifier, cell.Value)
			}
		}
	}
	if reader.Err() != nil {
		t.Error(reader.Err())
	}
}

// withinView checks that reads by the view v show all that it has, and nothing else, and that writes of it succeed.
func withinView(t *testing.T, ctx context.Context, c bigtablepb.BigtableClient) {
	t.Helper()
	progress := metadata.AppendToOutgoingContext(ctx, "bigtable-features", "IAE=") // last_scanned_row_responses
	hidden := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: []byte("secret")}}
	some := &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("a/3"), []byte("b/3"), []byte("y/3")}}
	for what, k := range map[string]struct {
		do   attempt
		want string
	}{
		"all":      {readAttempt(&bigtablepb.ReadRowsRequest{}), "a/0qna/1qna/2qna/3qna/4qna/5qn a/6qna/7qna/8qna/9qn"},
		"reversed": {readAttempt(&bigtablepb.ReadRowsRequest{Reversed: true, RowsLimit: 2}), "a/9qna/8qn"},
		"keys":     {readAttempt(&bigtablepb.ReadRowsRequest{Rows: some}), "a/3qn"},
		"hidden":   {readAttempt(&bigtablepb.ReadRowsRequest{Filter: hidden}), ""},
		"sample":   {sampleAttempt, "a/5 a0"},
	} {
		got, err := k.do(progress, c, "", viewOfA)
		if err != nil || strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(k.want, " ", "") {
			t.Errorf("%s: %q, %v, want %q", what, got, err, k.want)
		}
	}
	for what, do := range writeAttempts("a/3", "g", "n") {
		if got, err := do(ctx, c, wholeTable, viewOfA); err != nil || strings.Contains(got, "secret") {
			t.Errorf("%s within the view: %s, %v", what, got, err)
		}
	}
}

// outsideView checks that nothing outside of the view v can be changed by it, and that other views are not found.
func outsideView(t *testing.T, ctx context.Context, c bigtablepb.BigtableClient) {
	t.Helper()
	for _, at := range [][3]string{{"b/3", "f", "q"}, {"y/3", "g", "n"}, {"a", "f", "q"}, {"a/3", "g", "evil"}, {"a/3", "h", "q"}, {"a/3", "absent", "q"}} {
		for what, do := range writeAttempts(at[0], at[1], at[2]) {
			_, err := do(ctx, c, "", viewOfA)
			expectCode(t, fmt.Sprintf("%s of %q", what, at), err, codes.PermissionDenied)
		}
	}
	whole := []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}}
	family := []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: "g"}}}}
	for what, mutations := range map[string][]*bigtablepb.Mutation{"row": whole, "family": family} {
		_, err := c.MutateRow(ctx, &bigtablepb.MutateRowRequest{AuthorizedViewName: viewOfA, RowKey: []byte("a/3"), Mutations: mutations})
		expectCode(t, "deletion of a "+what, err, codes.PermissionDenied)
	}
	for _, name := range []string{wholeTable + "/authorizedViews/other", wholeTable + "/authorizedViews/absent", "projects/p/instances/i/tables/hidden/authorizedViews/v"} {
		_, err := readAttempt(&bigtablepb.ReadRowsRequest{})(ctx, c, "", name)
		expectCode(t, "read of "+name, err, codes.NotFound)
		_, err = sampleAttempt(ctx, c, "", name)
		expectCode(t, "sample of "+name, err, codes.NotFound)
		for what, do := range writeAttempts("a/3", "f", "evil") {
			_, err := do(ctx, c, "", name)
			expectCode(t, what+" of "+name, err, codes.NotFound)
		}
	}
}

// refusedByTable checks that a user without rights on the table can do nothing with it.
func refusedByTable(t *testing.T, ctx context.Context, conn *grpc.ClientConn) {
	t.Helper()
	c := bigtablepb.NewBigtableClient(conn)
	for what, do := range map[string]attempt{
		"read": readAttempt(&bigtablepb.ReadRowsRequest{}), "read of a row": readAttempt(&bigtablepb.ReadRowsRequest{Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("a/3")}}}),
		"sample": sampleAttempt,
		"partitions": func(ctx context.Context, c bigtablepb.BigtableClient, table, _ string) (string, error) {
			s, err := c.GenerateInitialChangeStreamPartitions(ctx, &bigtablepb.GenerateInitialChangeStreamPartitionsRequest{TableName: table})
			return collect(s, err, func(m *bigtablepb.GenerateInitialChangeStreamPartitionsResponse) string { return m.String() })
		},
		"changes": func(ctx context.Context, c bigtablepb.BigtableClient, table, _ string) (string, error) {
			s, err := c.ReadChangeStream(ctx, &bigtablepb.ReadChangeStreamRequest{TableName: table})
			return collect(s, err, func(m *bigtablepb.ReadChangeStreamResponse) string { return m.String() })
		},
	} {
		got, err := do(ctx, c, wholeTable, "")
		expectCode(t, what+" of the table, which shows "+got, err, codes.PermissionDenied)
	}
	for what, do := range writeAttempts("a/3", "f", "evil") {
		if _, err := do(ctx, c, wholeTable, ""); err == nil { // families are hidden
			t.Errorf("%s in the table", what)
		}
	}
	admin := adminpb.NewBigtableTableAdminClient(conn)
	_, drop := admin.DropRowRange(ctx, &adminpb.DropRowRangeRequest{Name: wholeTable, Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: []byte("a/")}})
	_, remove := admin.DeleteTable(ctx, &adminpb.DeleteTableRequest{Name: wholeTable})
	_, policy := admin.GetIamPolicy(ctx, &iampb.GetIamPolicyRequest{Resource: wholeTable})
	for what, err := range map[string]error{"drop": drop, "remove": remove, "policy": policy} {
		expectCode(t, what+" of the table", err, codes.PermissionDenied)
	}
	if got, err := admin.GetTable(ctx, &adminpb.GetTableRequest{Name: wholeTable}); err != nil || len(got.ColumnFamilies) > 0 {
		t.Errorf("the table is %v, %v", got, err)
	}
}

// TestGoViews: Google's Go client uses an authorized view, by plain calls and in sessions.
func TestGoViews(t *testing.T) {
	n := startNode(t)
	plain, admin := goClient(t, n)
	createTable(t, admin)
	own, err := client.Open(t.Context(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	fillViewed(t, own)
	administersViews(t, admin)
	t.Setenv("BIGTABLE_EMULATOR_HOST", "")
	inSessions, counted := sessionClient(t, n.BigtableAddr())
	usesView(t, plain.OpenAuthorizedView(table, "v"), "a")
	v := inSessions.OpenAuthorizedView(table, "v")
	awaitSessions(t, v, counted)
	unary, streams := counted.unary.Load(), counted.streams.Load()
	usesRows(t, v, "b")
	if counted.unary.Load() > unary || counted.streams.Load() > streams {
		t.Errorf("%d rows were mutated and %d read without sessions", counted.unary.Load()-unary, counted.streams.Load()-streams)
	}
	if _, err := inSessions.OpenAuthorizedView(table, "absent").ReadRow(t.Context(), "a/1"); status.Code(err) != codes.NotFound {
		t.Errorf("a view that does not exist: %v", err)
	}
}

// administersViews replaces the view v by an equal one, and updates others.
func administersViews(t *testing.T, admin *bigtable.AdminClient) {
	t.Helper()
	ctx := t.Context()
	subset := &bigtable.SubsetViewConf{RowPrefixes: [][]byte{[]byte("a/")},
		FamilySubsets: map[string]bigtable.FamilySubset{"f": {QualifierPrefixes: [][]byte{{}}}, "g": {Qualifiers: [][]byte{[]byte("n")}}}}
	conf := &bigtable.AuthorizedViewConf{TableID: table, AuthorizedViewID: "v", AuthorizedView: subset, DeletionProtection: bigtable.Protected}
	expectCode(t, "a view that exists", admin.CreateAuthorizedView(ctx, conf), codes.AlreadyExists)
	if err := admin.DeleteAuthorizedView(ctx, table, "v"); err != nil {
		t.Fatal(err)
	}
	if err := admin.CreateAuthorizedView(ctx, conf); err != nil {
		t.Fatal(err)
	}
	if names, err := admin.AuthorizedViews(ctx, table); err != nil || !slices.Equal(names, []string{"other", "v"}) {
		t.Errorf("views %q, %v", names, err)
	}
	expectCode(t, "deletion of a protected view", admin.DeleteAuthorizedView(ctx, table, "v"), codes.FailedPrecondition)
	expectCode(t, "deletion of its table", admin.DeleteTable(ctx, table), codes.FailedPrecondition)
	update := bigtable.UpdateAuthorizedViewConf{AuthorizedViewConf: bigtable.AuthorizedViewConf{TableID: table, AuthorizedViewID: "v", DeletionProtection: bigtable.Unprotected}}
	if err := admin.UpdateAuthorizedView(ctx, update); err != nil {
		t.Fatal(err)
	}
	got, err := admin.AuthorizedViewInfo(ctx, table, "v")
	if err != nil || got.DeletionProtection != bigtable.Unprotected || fmt.Sprint(got.AuthorizedView.(*bigtable.SubsetViewInfo).FamilySubsets) != fmt.Sprint(subset.FamilySubsets) {
		t.Errorf("%+v, %v", got, err)
	}
	update.AuthorizedViewConf.AuthorizedViewID, update.AuthorizedViewConf.AuthorizedView = "other", subset
	if err := admin.UpdateAuthorizedView(ctx, update); err == nil {
		t.Error("an update removed rows of a view")
	}
	update.IgnoreWarnings = true
	if err := admin.UpdateAuthorizedView(ctx, update); err != nil {
		t.Error(err)
	}
	if _, err := admin.AuthorizedViewInfo(ctx, table, "absent"); status.Code(err) != codes.NotFound {
		t.Errorf("a view that does not exist: %v", err)
	}
}

// TestSecuredViewAdmin: only administrators of a table create, change and delete its views, and grant rights on them. A user sees the views on which it
// has a right.
func TestSecuredViewAdmin(t *testing.T) {
	s := startSecured(t)
	fillViewed(t, s.admin)
	ann, bob := s.user("ann", "", ""), s.user("bob", "admin", table)
	annConn, bobConn := s.dial(s.nodes[0], nil), s.dial(s.nodes[1], nil)
	asAnn, asBob := withToken(t.Context(), ann), withToken(t.Context(), bob)
	byAnn, byBob := adminpb.NewBigtableTableAdminClient(annConn), adminpb.NewBigtableTableAdminClient(bobConn)
	calls := func(ctx context.Context, c adminpb.BigtableTableAdminClient, view string) map[string]error {
		name := wholeTable + "/authorizedViews/" + view
		all := &adminpb.AuthorizedView{Name: name, AuthorizedView: &adminpb.AuthorizedView_SubsetView_{SubsetView: &adminpb.AuthorizedView_SubsetView{
			RowPrefixes: [][]byte{{}}, FamilySubsets: map[string]*adminpb.AuthorizedView_FamilySubsets{"f": {QualifierPrefixes: [][]byte{{}}}, "g": {QualifierPrefixes: [][]byte{{}}}}}}}
		_, create := c.CreateAuthorizedView(ctx, &adminpb.CreateAuthorizedViewRequest{Parent: wholeTable, AuthorizedViewId: "mine", AuthorizedView: all})
		_, update := c.UpdateAuthorizedView(ctx, &adminpb.UpdateAuthorizedViewRequest{AuthorizedView: all})
		_, remove := c.DeleteAuthorizedView(ctx, &adminpb.DeleteAuthorizedViewRequest{Name: name})
		_, policy := c.GetIamPolicy(ctx, &iampb.GetIamPolicyRequest{Resource: name})
		_, set := c.SetIamPolicy(ctx, &iampb.SetIamPolicyRequest{Resource: name, Policy: readers("user:ann")})
		return map[string]error{"create": create, "update": update, "delete": remove, "get policy": policy, "set policy": set}
	}
	seen := func() string {
		list, err := byAnn.ListAuthorizedViews(asAnn, &adminpb.ListAuthorizedViewsRequest{Parent: wholeTable, View: adminpb.AuthorizedView_FULL})
		text := status.Code(err).String()
		for _, v := range list.GetAuthorizedViews() {
			text += " " + strings.TrimPrefix(v.Name, wholeTable)
		}
		return text
	}
	for what, err := range calls(asAnn, byAnn, "v") {
		expectCode(t, what+" without a right", err, codes.NotFound)
	}
	if got := seen(); got != "NotFound" {
		t.Errorf("views that ann sees without a right: %s", got)
	}
	if _, err := byBob.SetIamPolicy(asBob, &iampb.SetIamPolicyRequest{Resource: viewOfA, Policy: readers("user:ann")}); err != nil {
		t.Fatal(err)
	}
	if got, err := readAttempt(&bigtablepb.ReadRowsRequest{RowsLimit: 1})(asAnn, bigtablepb.NewBigtableClient(annConn), "", viewOfA); err != nil || got != "a/0qn" {
		t.Errorf("ann reads %s, %v", got, err)
	}
	if got := seen(); got != "OK /authorizedViews/v" {
		t.Errorf("views that ann sees: %s", got)
	}
	for what, err := range calls(asAnn, byAnn, "v") {
		expectCode(t, what+" with a right on the view", err, codes.PermissionDenied)
	}
	for what, err := range calls(asAnn, byAnn, "other") {
		want := codes.NotFound
		if what == "create" || what == "delete" { // they do not depend on whether the view exists
			want = codes.PermissionDenied
		}
		expectCode(t, what+" of another view", err, want)
	}
	permissions := []string{"bigtable.authorizedViews.readRows", "bigtable.authorizedViews.mutateRows"}
	if got, err := byAnn.TestIamPermissions(asAnn, &iampb.TestIamPermissionsRequest{Resource: viewOfA, Permissions: permissions}); err != nil || len(got.Permissions) != 1 {
		t.Errorf("ann has %v, %v", got, err)
	}
	if _, err := byBob.SetIamPolicy(asBob, &iampb.SetIamPolicyRequest{Resource: viewOfA, Policy: &iampb.Policy{}}); err != nil {
		t.Fatal(err)
	}
	_, err := sampleAttempt(asAnn, bigtablepb.NewBigtableClient(annConn), "", viewOfA)
	expectCode(t, "after the right is revoked", err, codes.NotFound)
}

// readers is the policy that makes a member a reader.
func readers(member string) *iampb.Policy {
	return &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/bigtable.reader", Members: []string{member}}}}
}

// usesRows reads and writes rows by the view v. The values are those of one caller.
func usesRows(t *testing.T, v bigtable.TableAPI, value string) {
	t.Helper()
	m := bigtable.NewMutation()
	m.Set("g", "n", 2000, []byte(value))
	if err := v.Apply(t.Context(), "a/1", m); err != nil {
		t.Error(err)
	}
	expectCode(t, "a row outside", v.Apply(t.Context(), "b/1", m), codes.PermissionDenied)
	m.Set("g", "secret", 2000, nil)
	expectCode(t, "a column outside", v.Apply(t.Context(), "a/1", m), codes.PermissionDenied)
	row, err := v.ReadRow(t.Context(), "a/1")
	if err != nil || len(row["f"]) != 1 || len(row["g"]) != 2 || string(row["g"][0].Value) != value {
		t.Errorf("%v, %v", row, err)
	}
	if row, err := v.ReadRow(t.Context(), "b/1"); err != nil || row != nil {
		t.Errorf("a hidden row: %v, %v", row, err)
	}
}

// usesView uses all methods about rows by the view v.
func usesView(t *testing.T, v bigtable.TableAPI, value string) {
	t.Helper()
	usesRows(t, v, value)
	var keys []string
	if err := v.ReadRows(t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool { keys = append(keys, r.Key()); return true }); err != nil || len(keys) != 10 || keys[9] != "a/9" {
		t.Errorf("%q, %v", keys, err)
	}
	if got, err := v.SampleRowKeys(t.Context()); err != nil || !slices.Equal(got, []string{"a/5", "a0"}) {
		t.Errorf("samples: %q, %v", got, err)
	}
	m := bigtable.NewMutation()
	m.Set("f", "q", 3000, []byte(value))
	errs, err := v.ApplyBulk(t.Context(), []string{"a/2", "b/2"}, []*bigtable.Mutation{m, m})
	if err != nil || errs[0] != nil || status.Code(errs[1]) != codes.PermissionDenied {
		t.Errorf("%v, %v", errs, err)
	}
	matched := false
	cond := bigtable.NewCondMutation(bigtable.ColumnFilter("secret"), m, nil)
	if err := v.Apply(t.Context(), "a/2", cond, bigtable.GetCondMutationResult(&matched)); err != nil || matched {
		t.Errorf("a condition on a hidden column: %v, %v", matched, err)
	}
	rmw := bigtable.NewReadModifyWrite()
	rmw.AppendValue("g", "n", []byte("+"))
	if row, err := v.ApplyReadModifyWrite(t.Context(), "a/2", rmw); err != nil || string(row["g"][0].Value) != "1+" {
		t.Errorf("%v, %v", row, err)
	}
	rmw.Increment("g", "secret", 1)
	_, err = v.ApplyReadModifyWrite(t.Context(), "a/2", rmw)
	expectCode(t, "a hidden column", err, codes.PermissionDenied)
}
