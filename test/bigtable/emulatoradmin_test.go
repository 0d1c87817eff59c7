package bigtable

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/steledb/stele/internal/testseed"
)

const parent = "projects/p/instances/i"

// outcome is the result of a call.
type outcome struct {
	call string // its kind
	code codes.Code
	text string // of the answer, and the request
}

// differences are the codes that a node returns instead of the emulator's.
var differences = []struct {
	call           string
	emulator, node codes.Code
	why            string
}{
	{"ModifyColumnFamilies", codes.Unknown, codes.NotFound, "the emulator returns plain errors for families that do not exist"},
	{"ModifyColumnFamilies", codes.FailedPrecondition, codes.NotFound, "the emulator looks for drops of a protected table before all else"},
	{"ModifyColumnFamilies", codes.FailedPrecondition, codes.AlreadyExists, "likewise"},
	{"DropRowRange", codes.Unknown, codes.InvalidArgument, "the emulator returns a plain error without a prefix"},
	{"MutateRow", codes.Unknown, codes.NotFound, "plain errors, again"},
	{"MutateRows", codes.Internal, codes.NotFound, "likewise, in the status of an entry"},
	{"CheckAndMutateRow", codes.Unknown, codes.NotFound, "likewise"},
	{"ReadModifyWriteRow", codes.Unknown, codes.NotFound, "likewise"},
	{"MutateRow", codes.Unknown, codes.InvalidArgument, "and for an operand in a plain family"},
	{"MutateRows", codes.Internal, codes.InvalidArgument, "likewise"},
	{"ReadRows", codes.NotFound, codes.InvalidArgument, "a node checks a request before it looks for the table"},
	{"CheckAndMutateRow", codes.NotFound, codes.InvalidArgument, "likewise"},
	{"ReadModifyWriteRow", codes.Unknown, codes.FailedPrecondition, "and for an increment of what is not 8 bytes long"},
}

// same reports whether a node may have this outcome if the emulator has that one.
func (want outcome) same(got outcome) bool {
	if want.code == got.code {
		return want.text == got.text
	}
	for _, d := range differences {
		if d.call == want.call && d.emulator == want.code && d.node == got.code {
			return true
		}
	}
	return false
}

// sums is a family of sums, whose name is behind that of the first family and before those of others: the emulator orders families by their creation.
const sums = "fs"

// sumType is the value type of a family of sums of int64. The emulator has no other aggregates: it keeps the last operand of these.
func sumType() *adminpb.Type {
	return &adminpb.Type{Kind: &adminpb.Type_AggregateType{AggregateType: &adminpb.Type_Aggregate{
		InputType:  &adminpb.Type{Kind: &adminpb.Type_Int64Type{Int64Type: &adminpb.Type_Int64{}}},
		Aggregator: &adminpb.Type_Aggregate_Sum_{Sum: &adminpb.Type_Aggregate_Sum{}}}}}
}

func tableID(i int) string { return fmt.Sprint("t", i) }

// name returns the name of one of three tables.
func (r random) name() string { return parent + "/tables/" + tableID(r.IntN(3)) }

// rule returns a garbage collection rule, or nil.
func (r random) rule(depth int) *adminpb.GcRule {
	switch n := r.IntN(3 + 2*depth); n {
	case 0:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: 1 + r.Int32N(5)}}
	case 1, 2:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxAge{MaxAge: &durationpb.Duration{Seconds: 1 + r.Int64N(1000), Nanos: 1000 * r.Int32N(1000)}}}
	default:
		rules := []*adminpb.GcRule{r.rule(depth - 1), r.rule(depth - 1)}
		if n%2 == 0 {
			return &adminpb.GcRule{Rule: &adminpb.GcRule_Union_{Union: &adminpb.GcRule_Union{Rules: rules}}}
		}
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Intersection_{Intersection: &adminpb.GcRule_Intersection{Rules: rules}}}
	}
}

// family returns the name of a family and, unless rows have it, a rule: the emulator collects garbage when it likes.
func (r random) familyWithRule() (string, *adminpb.ColumnFamily) {
	switch name := []string{"g", "h", "i"}[r.IntN(3)]; name {
	case "g":
		return name, &adminpb.ColumnFamily{}
	default:
		return name, &adminpb.ColumnFamily{GcRule: r.rule(2)}
	}
}

// modifications are one or, if they cannot fail, several: the emulator makes those before the one that fails.
func (r random) modifications() []*adminpb.ModifyColumnFamiliesRequest_Modification {
	type modification = adminpb.ModifyColumnFamiliesRequest_Modification
	name, family := r.familyWithRule()
	create := &modification{Id: name, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: family}}
	drop := &modification{Id: name, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Drop{Drop: true}}
	update := &modification{Id: name, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Update{Update: family}}
	if r.IntN(2) == 0 {
		update.UpdateMask = &fieldmaskpb.FieldMask{Paths: []string{"gc_rule"}}
	}
	retype := &adminpb.ColumnFamily{ValueType: sumType()}
	retype.ValueType.GetAggregateType().Aggregator = &adminpb.Type_Aggregate_Max_{Max: &adminpb.Type_Aggregate_Max{}}
	switch r.IntN(7) {
	case 6:
		return []*modification{{Id: sums, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Update{Update: retype}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"value_type"}}}}
	case 0:
		return []*modification{drop, create}
	case 1:
		return []*modification{create, update, drop}
	case 2:
		return []*modification{update}
	case 3:
		return []*modification{drop}
	}
	return []*modification{create}
}

// describe returns a table as text. Families are sorted; the emulator has an empty rule where there is none.
func describe(t *adminpb.Table) string {
	var all []string
	for name, f := range t.GetColumnFamilies() {
		rule := f.GetGcRule()
		if rule.GetRule() == nil {
			rule = nil
		}
		all = append(all, fmt.Sprintf("%s{%s %t}", name, strings.Join(strings.Fields(prototext.MarshalOptions{}.Format(rule)), " "), f.GetValueType().GetAggregateType().GetSum() != nil))
	}
	slices.Sort(all)
	return fmt.Sprintf("%s %v %t %s", t.GetName(), t.GetGranularity(), t.GetDeletionProtection(), strings.Join(all, " "))
}

// admin makes a random call about tables.
func (r random) admin(ctx context.Context, s *server) outcome {
	name := r.name()
	switch r.IntN(10) {
	case 0, 1:
		t := &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"f": {}}, DeletionProtection: r.IntN(4) == 0, Granularity: adminpb.Table_TimestampGranularity(r.IntN(2))}
		got, err := s.admin.CreateTable(ctx, &adminpb.CreateTableRequest{Parent: parent, TableId: tableID(r.IntN(3)), Table: t})
		if err == nil { // in a call of its own: the emulator orders the families of one call at random
			got, err = s.admin.ModifyColumnFamilies(ctx, &adminpb.ModifyColumnFamiliesRequest{Name: got.Name, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{
				{Id: sums, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: &adminpb.ColumnFamily{ValueType: sumType()}}}}})
			got.DeletionProtection = false // the emulator leaves it out
		}
		return outcome{"CreateTable", status.Code(err), describe(got)}
	case 2:
		_, err := s.admin.DeleteTable(ctx, &adminpb.DeleteTableRequest{Name: name})
		return outcome{"DeleteTable", status.Code(err), name}
	case 3:
		req := &adminpb.UpdateTableRequest{Table: &adminpb.Table{Name: name, DeletionProtection: r.IntN(3) == 0}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"deletion_protection"}}}
		op, err := s.admin.UpdateTable(ctx, req)
		return outcome{"UpdateTable", status.Code(err), fmt.Sprint(name, op.GetDone())}
	case 4:
		got, err := s.admin.GetTable(ctx, &adminpb.GetTableRequest{Name: name})
		return outcome{"GetTable", status.Code(err), describe(got)}
	case 5:
		got, err := s.admin.ListTables(ctx, &adminpb.ListTablesRequest{Parent: parent})
		var all []string
		for _, t := range got.GetTables() {
			all = append(all, t.Name)
		}
		slices.Sort(all)
		return outcome{"ListTables", status.Code(err), fmt.Sprint(all)}
	case 6:
		return r.dropRows(ctx, s, name)
	case 7:
		token, err := s.admin.GenerateConsistencyToken(ctx, &adminpb.GenerateConsistencyTokenRequest{Name: name})
		if err == nil {
			var c *adminpb.CheckConsistencyResponse
			c, err = s.admin.CheckConsistency(ctx, &adminpb.CheckConsistencyRequest{Name: name, ConsistencyToken: token.ConsistencyToken + strings.Repeat("x", r.IntN(2))})
			return outcome{"CheckConsistency", status.Code(err), fmt.Sprint(c.GetConsistent())}
		}
		return outcome{"GenerateConsistencyToken", status.Code(err), name}
	}
	req := &adminpb.ModifyColumnFamiliesRequest{Name: name, Modifications: r.modifications()}
	got, err := s.admin.ModifyColumnFamilies(ctx, req)
	if err == nil {
		got.DeletionProtection = false // the emulator leaves it out
	}
	return outcome{"ModifyColumnFamilies", status.Code(err), describe(got)}
}

// dropRows drops rows of a table: all, or those with a prefix.
func (r random) dropRows(ctx context.Context, s *server, name string) outcome {
	req := &adminpb.DropRowRangeRequest{Name: name}
	switch r.IntN(4) {
	case 0:
		req.Target = &adminpb.DropRowRangeRequest_DeleteAllDataFromTable{DeleteAllDataFromTable: true}
	case 1:
		req.Target = &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: []byte("r")}
	case 2:
		req.Target = &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: r.row()}
	}
	_, err := s.admin.DropRowRange(ctx, req)
	return outcome{"DropRowRange", status.Code(err), name}
}

// unknownFamily puts a mutation of a family that may not exist before the others: the emulator executes those before one that fails.
func (r random) unknownFamily(all []*bigtablepb.Mutation) []*bigtablepb.Mutation {
	family := []string{"f", "f", "g", "x"}[r.IntN(4)]
	first := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: family, TimestampMicros: r.timestamp(), Value: r.value()}}}
	if family != "f" { // what follows must not fail
		return []*bigtablepb.Mutation{first}
	}
	kept := []*bigtablepb.Mutation{first}
	for _, m := range all {
		if set := m.GetSetCell(); set != nil && set.FamilyName == "f" || m.GetDeleteFromRow() != nil {
			kept = append(kept, m)
		}
	}
	return kept
}

// data makes a random call about rows.
func (r random) data(ctx context.Context, s *server) outcome {
	name, row := r.name(), r.row()
	switch r.IntN(8) {
	case 5:
		m := r.operands()
		if r.IntN(3) > 0 {
			_, err := s.data.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: name, RowKey: row, Mutations: m})
			return outcome{"MutateRow", status.Code(err), name}
		}
		return mutateRows(ctx, s, name, row, m)
	case 0, 1:
		_, err := s.data.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: name, RowKey: row, Mutations: r.unknownFamily(r.mutations())})
		return outcome{"MutateRow", status.Code(err), name}
	case 2:
		return mutateRows(ctx, s, name, r.row(), r.unknownFamily(r.mutations()))
	case 3:
		// A node looks at both lists, and the emulator at the one that it executes.
		then := r.unknownFamily(r.mutations())
		req := &bigtablepb.CheckAndMutateRowRequest{TableName: name, RowKey: row, PredicateFilter: r.withoutCounters(1), TrueMutations: then, FalseMutations: then[:1]}
		got, err := s.data.CheckAndMutateRow(ctx, req)
		return outcome{"CheckAndMutateRow", status.Code(err), fmt.Sprint(got.GetPredicateMatched())}
	case 4:
		return r.readModifyWrite(ctx, s, name, row)
	}
	req := &bigtablepb.ReadRowsRequest{TableName: name, Rows: r.rowSet(), Filter: r.withoutCounters(2), RowsLimit: r.Int64N(3)}
	text := s.read(ctx, req)
	for _, code := range []codes.Code{codes.NotFound, codes.InvalidArgument} {
		if text == code.String() {
			return outcome{"ReadRows", code, text}
		}
	}
	return outcome{"ReadRows", codes.OK, text}
}

// operands returns additions to the cells of the family sums and deletions of these, or one to another family, which fails.
func (r random) operands() (all []*bigtablepb.Mutation) {
	family := sums
	if r.IntN(8) == 0 {
		family = []string{"f", "x"}[r.IntN(2)]
	}
	raw := func(b []byte) *bigtablepb.Value {
		return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: b}}
	}
	for range 1 + r.IntN(3) {
		qualifier, n := r.qualifier(), r.Int64N(1000)-500
		at := &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: r.timestamp()}}
		m := &bigtablepb.Mutation{}
		switch r.IntN(4) {
		case 0:
			m.Mutation = &bigtablepb.Mutation_MergeToCell_{MergeToCell: &bigtablepb.Mutation_MergeToCell{FamilyName: family, ColumnQualifier: raw(qualifier), Timestamp: at,
				Input: raw(binary.BigEndian.AppendUint64(nil, uint64(n)))}}
		case 1:
			if family == sums && len(all) > 0 {
				m.Mutation = &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: &bigtablepb.Mutation_DeleteFromColumn{FamilyName: family, ColumnQualifier: qualifier}}
				break
			}
			fallthrough
		default:
			m.Mutation = &bigtablepb.Mutation_AddToCell_{AddToCell: &bigtablepb.Mutation_AddToCell{FamilyName: family, ColumnQualifier: raw(qualifier), Timestamp: at,
				Input: &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: n}}}}
		}
		all = append(all, m)
	}
	return all
}

func mutateRows(ctx context.Context, s *server, name string, row []byte, mutations []*bigtablepb.Mutation) outcome {
	req := &bigtablepb.MutateRowsRequest{TableName: name, Entries: []*bigtablepb.MutateRowsRequest_Entry{{RowKey: row, Mutations: mutations}}}
	stream, err := s.data.MutateRows(ctx, req)
	var m *bigtablepb.MutateRowsResponse
	if err == nil {
		m, err = stream.Recv()
	}
	code := status.Code(err)
	if err == nil {
		code = codes.Code(m.Entries[0].Status.Code)
		if _, err = stream.Recv(); !errors.Is(err, io.EOF) {
			code = codes.DataLoss
		}
	}
	return outcome{"MutateRows", code, fmt.Sprint(len(m.GetEntries()))}
}

// withoutCounters returns a filter that drops the columns of readModifyWrite first: how many versions they have depends on the clock.
func (r random) withoutCounters(depth int) *bigtablepb.RowFilter {
	others := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: []byte("(q.)?")}}
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: []*bigtablepb.RowFilter{others, r.filter(depth)}}}}
}

// readModifyWrite appends to a column, or increments it: a column of its own, whose cells have server timestamps. No append is empty: a node
// counts an empty value as 0, and the emulator rejects its increment.
func (r random) readModifyWrite(ctx context.Context, s *server, name string, row []byte) outcome {
	rule := &bigtablepb.ReadModifyWriteRule{FamilyName: []string{"f", "f", "x"}[r.IntN(3)], ColumnQualifier: []byte("n"),
		Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: r.Int64N(100)}}
	if r.IntN(2) == 0 {
		rule.ColumnQualifier, rule.Rule = fmt.Appendf(nil, "%c", "na"[r.IntN(2)]), &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: binary.BigEndian.AppendUint64(nil, 1)[:1+7*r.IntN(2)]}
	}
	got, err := s.data.ReadModifyWriteRow(ctx, &bigtablepb.ReadModifyWriteRowRequest{TableName: name, RowKey: row, Rules: []*bigtablepb.ReadModifyWriteRule{rule}})
	var values []string
	for _, family := range got.GetRow().GetFamilies() {
		for _, column := range family.Columns {
			values = append(values, fmt.Sprintf("%s:%s=%x", family.Name, column.Qualifier, column.Cells[0].Value))
		}
	}
	return outcome{"ReadModifyWriteRow", status.Code(err), fmt.Sprint(values)}
}

// adminSteps is the number of random calls: some 2 s. Of five, two are about tables.
const adminSteps = 3000

// TestEmulatorAdmin: thousands of random calls about tables and rows have the same results as with the public emulator, but for the
// differences that are listed.
func TestEmulatorAdmin(t *testing.T) {
	servers := []*server{startEmulator(t), serverOf(dial(t, startNode(t)))}
	seed := testseed.New(t)
	seen := map[string]int{}
	for i := range uint64(adminSteps) {
		var got [2]outcome
		for k, s := range servers {
			r := random{rand.New(rand.NewPCG(seed, i))}
			if r.IntN(5) < 2 {
				got[k] = r.admin(t.Context(), s)
			} else {
				got[k] = r.data(t.Context(), s)
			}
		}
		seen[got[0].call+" "+got[1].code.String()]++
		if !got[0].same(got[1]) {
			t.Fatalf("call %d: the node returns\n%+v\nthe emulator\n%+v", i, got[1], got[0])
		}
	}
	t.Log(seen)
	for _, want := range []string{"CreateTable OK", "CreateTable AlreadyExists", "DeleteTable FailedPrecondition", "ModifyColumnFamilies OK", "ModifyColumnFamilies NotFound", "ModifyColumnFamilies InvalidArgument",
		"ModifyColumnFamilies FailedPrecondition", "MutateRow OK", "MutateRow NotFound", "ReadModifyWriteRow OK"} {
		if seen[want] == 0 {
			t.Errorf("no call ends with %s", want)
		}
	}
}
