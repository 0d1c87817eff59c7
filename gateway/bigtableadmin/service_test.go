package bigtableadmin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// fakeCluster has tables in memory, and four nodes.
type fakeCluster struct {
	tables map[string]*table.Schema
	splits []string // of the last table created with some
	// cleared are the ranges of rows that were deleted.
	cleared []string
	hot     *client.HotTabletsRequest // the last one
}

func (f *fakeCluster) service() *Service {
	return New(Config{Open: func(context.Context) (Tables, Nodes, error) { return f, fakeNodes{}, nil }})
}

type fakeNodes struct{}

func (fakeNodes) List(context.Context) ([]client.NodeInfo, error) {
	return []client.NodeInfo{{Zone: "b", State: api.NodeAlive}, {Zone: "a", State: api.NodeAlive}, {Zone: "b", State: api.NodeAlive}, {Zone: "c", State: api.NodeDead}}, nil
}

func (f *fakeCluster) List(context.Context) (all []*table.Schema, err error) {
	for _, s := range f.tables {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *table.Schema) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (f *fakeCluster) Describe(_ context.Context, name string) (*client.TableInfo, error) {
	if f.tables[name] == nil {
		return nil, client.ErrNoTable
	}
	return &client.TableInfo{Schema: f.tables[name]}, nil
}

func (f *fakeCluster) CreateFrom(_ context.Context, name string, spec *client.TableSpec) (*table.Schema, error) {
	if f.tables[name] != nil {
		return nil, client.ErrTableExists
	}
	s, err := table.NewSchema(name, 1).Apply(spec.Families...)
	if err != nil {
		return nil, err
	}
	s.Granularity, s.Protected = spec.Granularity, spec.Protected
	f.tables[name] = s
	if spec.SplitAt != nil {
		f.splits = spec.SplitAt
	}
	return s, nil
}

func (f *fakeCluster) Alter(_ context.Context, name string, changes ...table.Change) (s *table.Schema, err error) {
	if f.tables[name] == nil {
		return nil, client.ErrNoTable
	}
	if s, err = f.tables[name].Alter(changes...); err == nil {
		f.tables[name] = s
	}
	return s, err
}

func (f *fakeCluster) Drop(_ context.Context, name string) error {
	if f.tables[name] == nil {
		return client.ErrNoTable
	}
	if err := f.tables[name].CheckDrop(); err != nil {
		return err
	}
	delete(f.tables, name)
	return nil
}

func (f *fakeCluster) Undrop(_ context.Context, ref client.DroppedRef, _ string) (*table.Schema, error) {
	if f.tables[ref.Name] != nil {
		return nil, client.ErrTableExists
	}
	if ref.Name != "dropped" {
		return nil, client.ErrNoTable
	}
	f.tables[ref.Name] = table.NewSchema(ref.Name, 9)
	return f.tables[ref.Name], nil
}

// A deleted table is restored by an operation that is done.
func TestUndeleteTable(t *testing.T) {
	f := &fakeCluster{tables: map[string]*table.Schema{}}
	s := f.service()
	op, err := s.UndeleteTable(t.Context(), &adminpb.UndeleteTableRequest{Name: parent + "/tables/dropped"})
	if err != nil || !op.Done || op.Name == "" {
		t.Fatalf("%v, %v", op, err)
	}
	var restored adminpb.Table
	if err := op.GetResponse().UnmarshalTo(&restored); err != nil || restored.Name != parent+"/tables/dropped" {
		t.Errorf("%v, %v", &restored, err)
	}
	var about adminpb.UndeleteTableMetadata
	if err := op.Metadata.UnmarshalTo(&about); err != nil || about.Name != restored.Name || about.EndTime == nil {
		t.Errorf("%v, %v", &about, err)
	}
	for name, want := range map[string]codes.Code{"dropped": codes.AlreadyExists, "absent": codes.NotFound} {
		if _, err := s.UndeleteTable(t.Context(), &adminpb.UndeleteTableRequest{Name: parent + "/tables/" + name}); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

func (f *fakeCluster) ClearRows(_ context.Context, name, start, end string) error {
	f.cleared = append(f.cleared, fmt.Sprintf("%s %q-%q", name, start, end))
	return nil
}

func (f *fakeCluster) ClearPrefix(_ context.Context, name, prefix string) error {
	f.cleared = append(f.cleared, fmt.Sprintf("%s %q", name, prefix))
	return nil
}

// The table is looked up before the rest of a request is checked, as the emulator of Google does.
func TestDropRowRange(t *testing.T) {
	f := &fakeCluster{tables: map[string]*table.Schema{"t": table.NewSchema("t", 1)}}
	s := f.service()
	for _, x := range []struct {
		req  string
		code codes.Code
	}{
		{`name: "` + parent + `/tables/t" row_key_prefix: "a"`, codes.OK},
		{`name: "` + parent + `/tables/t" delete_all_data_from_table: true`, codes.OK},
		{`name: "` + parent + `/tables/t" delete_all_data_from_table: false`, codes.InvalidArgument},
		{`name: "` + parent + `/tables/t" row_key_prefix: ""`, codes.InvalidArgument},
		{`name: "` + parent + `/tables/t"`, codes.InvalidArgument},
		{`name: "` + parent + `/tables/u"`, codes.NotFound},
		{`name: "` + parent + `/tables/METADATA" delete_all_data_from_table: true`, codes.NotFound},
		{`name: "t" row_key_prefix: "a"`, codes.InvalidArgument},
	} {
		if _, err := s.DropRowRange(t.Context(), parse(t, &adminpb.DropRowRangeRequest{}, x.req)); status.Code(err) != x.code {
			t.Errorf("%s: %v, want %v", x.req, err, x.code)
		}
	}
	if want := []string{`t "a"`, `t ""-""`}; !slices.Equal(f.cleared, want) {
		t.Errorf("cleared %q, want %q", f.cleared, want)
	}
}

const parent = "projects/p/instances/i"

func parse[M proto.Message](t *testing.T, m M, text string) M {
	t.Helper()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func drawRule(t *rapid.T, depth int) *adminpb.GcRule {
	kind := rapid.IntRange(0, 3).Draw(t, "kind")
	if depth == 0 {
		kind %= 2
	}
	switch kind {
	case 0:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: rapid.Int32Range(1, 1<<31-1).Draw(t, "versions")}}
	case 1:
		age := time.Duration(rapid.Int64Range(1, 1<<50).Draw(t, "µs")) * time.Microsecond
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxAge{MaxAge: durationpb.New(age)}}
	}
	var rules []*adminpb.GcRule
	for range rapid.IntRange(2, 3).Draw(t, "rules") {
		rules = append(rules, drawRule(t, depth-1))
	}
	if kind == 2 {
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Union_{Union: &adminpb.GcRule_Union{Rules: rules}}}
	}
	return &adminpb.GcRule{Rule: &adminpb.GcRule_Intersection_{Intersection: &adminpb.GcRule_Intersection{Rules: rules}}}
}

// TestRules: a rule is returned as it was created (GA1).
func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := drawRule(t, 3)
		policy, err := policyOf(rule, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := policy.Validate(nil); err != nil {
			t.Fatal(err)
		}
		if got := ruleOf(&policy); !proto.Equal(got, rule) {
			t.Fatalf("%v became %v", rule, got)
		}
	})
	if p, err := policyOf(nil, 1); err != nil || ruleOf(&p) != nil { // GA2
		t.Errorf("no rule: %v, %v", ruleOf(&p), err)
	}
	deep := &adminpb.GcRule{}
	for range ruleDepthMax {
		deep = &adminpb.GcRule{Rule: &adminpb.GcRule_Union_{Union: &adminpb.GcRule_Union{Rules: []*adminpb.GcRule{deep}}}}
	}
	bad := []*adminpb.GcRule{deep}
	for _, text := range []string{`max_num_versions: 0`, `max_num_versions: -1`, `max_age {}`, `max_age {seconds: -1}`, `max_age {nanos: 999}`, `union {rules {max_num_versions: 0}}`} {
		bad = append(bad, parse(t, &adminpb.GcRule{}, text))
	}
	for _, r := range bad {
		if p, err := policyOf(r, 1); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v, %v, want INVALID_ARGUMENT", r, p, err)
		}
	}
}

// TestStrictLimits: with the limits of Google's service, names and rules just beyond them are rejected, and are accepted without.
func TestStrictLimits(t *testing.T) {
	rules := strings.Repeat(`rules {max_num_versions: 3}`, 120) // of 4 bytes each
	family := func(name, rule string) string {
		return `table {column_families {key: "` + name + `" value {gc_rule {` + rule + `}}}}`
	}
	for text, good := range map[string]bool{
		`table_id: "` + strings.Repeat("x", 50) + `"`: true,
		`table_id: "` + strings.Repeat("x", 51) + `"`: false,
		`table_id: "-x"`: false,
		`table_id: "x" ` + family("a-.b", `max_age {nanos: 1000000}`):                                       true,
		`table_id: "x" ` + family(".a", ``):                                                                 false,
		`table_id: "x" ` + family("a", `max_age {nanos: 999000}`):                                           false,
		`table_id: "x" ` + family("a", `union {rules {max_num_versions: 1} rules {max_age {nanos: 1000}}}`): false,
		`table_id: "x" ` + family("a", `union {`+rules+`}`):                                                 false,
	} {
		for _, strict := range []bool{false, true} {
			f := &fakeCluster{tables: map[string]*table.Schema{}}
			s := f.service()
			s.cfg.StrictLimits = strict
			req := parse(t, &adminpb.CreateTableRequest{}, text)
			req.Parent = parent
			_, err := s.CreateTable(t.Context(), req)
			tooMany := strings.Contains(text, rules) // for the cluster, too
			if want := !tooMany && (good || !strict); (err == nil) != want {
				t.Errorf("strict %v, %.200s: %v", strict, text, err)
			}
			for name, family := range req.GetTable().GetColumnFamilies() {
				schema := table.NewSchema("t", 1)
				f.tables["t"] = schema
				_, err := s.ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: parent + "/tables/t",
					Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{{Id: name, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: family}}}})
				if want := !tooMany && (good || !strict); (err == nil) != want {
					t.Errorf("strict %v, family of %.200s: %v", strict, text, err)
				}
			}
		}
	}
}

func TestCreateTable(t *testing.T) {
	f := &fakeCluster{tables: map[string]*table.Schema{}}
	s := f.service()
	for _, c := range []struct {
		text string
		want codes.Code
	}{
		{`table_id: "t" table {column_families {key: "b" value {gc_rule {max_num_versions: 2}}} column_families {key: "a" value {}}} initial_splits {key: "m"}`, codes.OK},
		{`table_id: "t"`, codes.AlreadyExists},
		{`table_id: "t/x"`, codes.InvalidArgument},
		{`table_id: ""`, codes.InvalidArgument},
		{`table_id: "x" initial_splits {}`, codes.InvalidArgument},
		{`table_id: "micros" table {granularity: MICROS}`, codes.OK},
		{`table_id: "x" table {granularity: 77}`, codes.InvalidArgument},
		{`table_id: "protected" table {deletion_protection: true}`, codes.OK},
		{`table_id: "x" table {change_stream_config {}}`, codes.InvalidArgument},
		{`table_id: "x" table {automated_backup_policy {}}`, codes.Unimplemented},
		{`table_id: "x" table {row_key_schema {}}`, codes.Unimplemented},
		{`table_id: "x" table {column_families {key: "a" value {value_type {int64_type {}}}}}`, codes.Unimplemented},
		{`table_id: "x" table {column_families {key: "a b" value {}}}`, codes.InvalidArgument},
	} {
		req := parse(t, &adminpb.CreateTableRequest{}, c.text)
		req.Parent = parent
		if got, err := s.CreateTable(t.Context(), req); status.Code(err) != c.want {
			t.Errorf("%s: %v, %v, want %v", c.text, got, err, c.want)
		}
	}
	want := parse(t, &adminpb.Table{}, `name: "projects/p/instances/i/tables/t" granularity: MILLIS
		column_families {key: "a" value {}} column_families {key: "b" value {gc_rule {max_num_versions: 2}}}`)
	got, err := s.GetTable(t.Context(), &adminpb.GetTableRequest{Name: parent + "/tables/t"})
	if err != nil || !proto.Equal(got, want) || len(f.tables) != 3 || !f.tables["protected"].Protected || f.tables["micros"].Granularity != table.GranularityMicros || !slices.Equal(f.splits, []string{"m"}) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	encrypted, err := s.GetTable(t.Context(), &adminpb.GetTableRequest{Name: parent + "/tables/t", View: adminpb.Table_ENCRYPTION_VIEW})
	if err != nil || len(encrypted.ClusterStates[clusterID].GetEncryptionInfo()) != 1 || len(encrypted.ColumnFamilies) != 0 {
		t.Errorf("%v, %v", encrypted, err)
	}
	full, err := s.GetTable(t.Context(), &adminpb.GetTableRequest{Name: parent + "/tables/t", View: adminpb.Table_FULL})
	if err != nil || full.ClusterStates[clusterID].GetReplicationState() != adminpb.Table_ClusterState_READY || len(full.ColumnFamilies) != 2 {
		t.Errorf("%v, %v", full, err)
	}
}

func TestListAndDelete(t *testing.T) {
	f := &fakeCluster{tables: map[string]*table.Schema{}}
	s := f.service()
	for i := range 5 {
		if _, err := s.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: parent, TableId: fmt.Sprint("t", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	req := &adminpb.ListTablesRequest{Parent: parent, PageSize: 2}
	for pages := 1; ; pages++ {
		page, err := s.ListTables(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page.Tables {
			got = append(got, strings.TrimPrefix(one.Name, parent+"/tables/"))
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			if pages != 3 {
				t.Errorf("%d pages, want 3", pages)
			}
			break
		}
	}
	if strings.Join(got, " ") != "t0 t1 t2 t3 t4" {
		t.Errorf("%v", got)
	}
	name := parent + "/tables/t3"
	for i, want := range []codes.Code{codes.OK, codes.NotFound} {
		if _, err := s.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: name}); status.Code(err) != want {
			t.Errorf("delete %d: %v, want %v", i, err, want)
		}
	}
	if _, err := s.GetTable(t.Context(), &adminpb.GetTableRequest{Name: name}); status.Code(err) != codes.NotFound {
		t.Errorf("%v, want NOT_FOUND", err)
	}
	token, err := s.GenerateConsistencyToken(t.Context(), &adminpb.GenerateConsistencyTokenRequest{Name: parent + "/tables/t1"})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.CheckConsistency(t.Context(), &adminpb.CheckConsistencyRequest{Name: parent + "/tables/t1", ConsistencyToken: token.ConsistencyToken}); err != nil || !c.Consistent {
		t.Errorf("%v, %v", c, err)
	}
}

const sumOfInts = `aggregate_type {input_type {int64_type {}} sum {}}`

// TestValueTypes: aggregates of integers, and sketches of them, survive, and all other types are rejected.
func TestValueTypes(t *testing.T) {
	for _, a := range []table.Aggregate{table.AggregateNone, table.AggregateSum, table.AggregateMin, table.AggregateMax, table.AggregateHLL} {
		if got, err := aggregateOf(valueTypeOf(a)); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	for text, want := range map[string]codes.Code{
		`bytes_type {}`: codes.Unimplemented, `int64_type {}`: codes.Unimplemented, `aggregate_type {}`: codes.InvalidArgument,
		`aggregate_type {sum {}}`: codes.InvalidArgument, `aggregate_type {input_type {string_type {}} max {}}`: codes.InvalidArgument,
		`aggregate_type {input_type {int64_type {}} hllpp_unique_count {}}`:                  codes.OK,
		`aggregate_type {input_type {string_type {}} hllpp_unique_count {}}`:                 codes.Unimplemented,
		`aggregate_type {hllpp_unique_count {}}`:                                             codes.Unimplemented,
		`aggregate_type {input_type {int64_type {encoding {ordered_code_bytes {}}}} sum {}}`: codes.Unimplemented,
		`aggregate_type {input_type {int64_type {encoding {big_endian_bytes {}}}} min {}}`:   codes.OK,
		`aggregate_type {input_type {int64_type {}} state_type {int64_type {}} max {}}`:      codes.OK,
	} {
		if _, err := aggregateOf(parse(t, &adminpb.Type{}, text)); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func TestModifyColumnFamilies(t *testing.T) {
	for _, c := range []struct {
		text string
		code codes.Code
		want string // the families afterwards
	}{
		{`modifications {id: "n" create {}} modifications {id: "n" update {gc_rule {max_num_versions: 3}}} modifications {id: "a" drop: true}`, codes.OK, "b:none n:versions=3"},
		{`modifications {id: "a" drop: true} modifications {id: "a" create {}}`, codes.OK, "a:none b:none"},
		{`modifications {id: "b" update {} update_mask {paths: "gc_rule"}}`, codes.OK, "a:versions=1 b:none"},
		{`modifications {id: "n" create {}} modifications {id: "b" create {}}`, codes.AlreadyExists, "a:versions=1 b:none"},
		{`modifications {id: "n" create {}} modifications {id: "x" update {}}`, codes.NotFound, "a:versions=1 b:none"},
		{`modifications {id: "a" drop: true} modifications {id: "a" drop: true}`, codes.NotFound, "a:versions=1 b:none"},
		{`modifications {id: "a" drop: false}`, codes.InvalidArgument, "a:versions=1 b:none"},
		{`modifications {id: "a"}`, codes.InvalidArgument, "a:versions=1 b:none"},
		{`modifications {id: "a" update {} update_mask {paths: "value_type"}}`, codes.OK, "a:versions=1 b:none"},
		{`modifications {id: "a" update {value_type {int64_type {}}} update_mask {paths: "value_type"}}`, codes.Unimplemented, "a:versions=1 b:none"},
		{`modifications {id: "a" update {value_type {` + sumOfInts + `}} update_mask {paths: "value_type"}}`, codes.InvalidArgument, "a:versions=1 b:none"},
		{`modifications {id: "a" update {} update_mask {paths: "other"}}`, codes.Unimplemented, "a:versions=1 b:none"},
		{`modifications {id: "s" create {value_type {` + sumOfInts + `}}} modifications {id: "s" update {gc_rule {max_num_versions: 3}}}
			modifications {id: "s" update {value_type {` + sumOfInts + `}} update_mask {paths: "value_type"}}`, codes.OK, "a:versions=1 b:none s:versions=3"},
	} {
		one := table.MaxVersions(1)
		schema, err := table.NewSchema("t", 1).Apply(table.FamilySpec{Name: "a", GC: &one}, table.FamilySpec{Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		f := &fakeCluster{tables: map[string]*table.Schema{"t": schema}}
		req := parse(t, &adminpb.ModifyColumnFamiliesRequest{}, c.text)
		req.Name = parent + "/tables/t"
		_, err = f.service().ModifyColumnFamilies(t.Context(), req)
		var got []string
		for _, family := range f.tables["t"].Families {
			got = append(got, family.Name+":"+family.GC.String())
		}
		if status.Code(err) != c.code || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, families %v; want %v, %s", c.text, err, got, c.code, c.want)
		}
	}
}

// TestUpdateTable: the deletion protection is updated, and holds for the table and its families. What cannot be stored is rejected.
func TestUpdateTable(t *testing.T) {
	schema, err := table.NewSchema("t", 1).Apply(table.FamilySpec{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeCluster{tables: map[string]*table.Schema{"t": schema}}
	s := f.service()
	name := parent + "/tables/t"
	for _, c := range []struct {
		text string
		want codes.Code
	}{
		{`table {name: "projects/p/instances/i/tables/t" deletion_protection: true row_key_schema {}} update_mask {paths: "deletion_protection"}`, codes.OK},
		{`table {name: "projects/p/instances/i/tables/t"} update_mask {paths: "change_stream_config"}`, codes.OK},
		{`table {name: "projects/p/instances/i/tables/x"} update_mask {paths: "deletion_protection"}`, codes.NotFound},
		{`table {name: "projects/p/instances/i/tables/x"} update_mask {paths: "row_key_schema"}`, codes.NotFound},
		{`table {name: "projects/p/instances/i/tables/t"}`, codes.InvalidArgument},
		{`table {name: "projects/p/instances/i/tables/t" granularity: MICROS} update_mask {paths: "granularity"}`, codes.InvalidArgument},
		{`table {name: "projects/p/instances/i/tables/t" change_stream_config {}} update_mask {paths: "change_stream_config.retention_period"}`, codes.InvalidArgument},
		{`table {name: "projects/p/instances/i/tables/t" change_stream_config {retention_period {seconds: 7200}}} update_mask {paths: "change_stream_config.retention_period"}`, codes.OK},
		{`table {name: "projects/p/instances/i/tables/t" row_key_schema {}} update_mask {paths: "row_key_schema"}`, codes.Unimplemented},
		{`table {name: "projects/p/instances/i/tables/t"} update_mask {paths: "column_families"}`, codes.Unimplemented},
		{`update_mask {paths: "deletion_protection"}`, codes.InvalidArgument},
	} {
		op, err := s.UpdateTable(t.Context(), parse(t, &adminpb.UpdateTableRequest{}, c.text))
		if status.Code(err) != c.want || err == nil && (!op.Done || op.GetResponse() == nil) {
			t.Errorf("%s: %v, %v, want %v", c.text, op, err, c.want)
		}
	}
	if got, err := s.GetTable(t.Context(), &adminpb.GetTableRequest{Name: name}); err != nil || !got.DeletionProtection || got.ChangeStreamConfig.GetRetentionPeriod().GetSeconds() != 7200 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := s.DeleteTable(t.Context(), &adminpb.DeleteTableRequest{Name: name}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a protected table is deleted: %v", err)
	}
	drop := parse(t, &adminpb.ModifyColumnFamiliesRequest{}, `modifications {id: "a" drop: true}`)
	drop.Name = name
	if _, err := s.ModifyColumnFamilies(t.Context(), drop); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a family of a protected table is dropped: %v", err)
	}
}

func TestInstances(t *testing.T) {
	s := &instances{cfg: (&fakeCluster{}).service().cfg}
	list, err := s.ListClusters(t.Context(), &adminpb.ListClustersRequest{Parent: parent})
	want := parse(t, &adminpb.Cluster{}, `name: "projects/p/instances/i/clusters/stele" location: "projects/p/locations/b" state: READY serve_nodes: 3 default_storage_type: SSD`)
	if err != nil || len(list.Clusters) != 1 || !proto.Equal(list.Clusters[0], want) {
		t.Errorf("%v, %v, want %v", list, err, want)
	}
	if got, err := s.GetInstance(t.Context(), &adminpb.GetInstanceRequest{Name: parent}); err != nil || got.Name != parent {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := s.GetCluster(t.Context(), &adminpb.GetClusterRequest{Name: parent + "/clusters/x"}); status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
	if got, err := s.ListInstances(t.Context(), &adminpb.ListInstancesRequest{Parent: "projects/p"}); err != nil || len(got.Instances) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := (operations{}).GetOperation(t.Context(), &longrunningpb.GetOperationRequest{Name: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
}

// TestReadOnly: what cannot be changed is answered with the reason, and what exists already with ALREADY_EXISTS.
func TestReadOnly(t *testing.T) {
	s := &instances{cfg: (&fakeCluster{}).service().cfg}
	code := func(_ any, err error) codes.Code { return status.Code(err) }
	ctx := t.Context()
	for i, c := range []struct{ got, want codes.Code }{
		{code(s.CreateInstance(ctx, &adminpb.CreateInstanceRequest{Parent: "projects/p", InstanceId: "i"})), codes.AlreadyExists},
		{code(s.CreateInstance(ctx, &adminpb.CreateInstanceRequest{Parent: "p", InstanceId: "i"})), codes.InvalidArgument},
		{code(s.UpdateInstance(ctx, nil)), codes.FailedPrecondition},
		{code(s.PartialUpdateInstance(ctx, nil)), codes.FailedPrecondition},
		{code(s.DeleteInstance(ctx, nil)), codes.FailedPrecondition},
		{code(s.CreateCluster(ctx, nil)), codes.FailedPrecondition},
		{code(s.UpdateCluster(ctx, nil)), codes.FailedPrecondition},
		{code(s.PartialUpdateCluster(ctx, nil)), codes.FailedPrecondition},
		{code(s.DeleteCluster(ctx, nil)), codes.FailedPrecondition},
		{code(s.ListLogicalViews(ctx, nil)), codes.OK},
		{code(s.ListMaterializedViews(ctx, nil)), codes.OK},
		{code((&fakeCluster{}).service().ListAuthorizedViews(ctx, &adminpb.ListAuthorizedViewsRequest{Parent: parent + "/tables/x"})), codes.NotFound},
	} {
		if c.got != c.want {
			t.Errorf("call %d: %v, want %v", i, c.got, c.want)
		}
	}
}
