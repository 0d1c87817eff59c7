package bigtable

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

const tableName = "projects/p/instances/i/tables/t"

// fakeTable fails rows as errs has it, and keeps what it was called with.
type fakeTable struct {
	Table
	errs    map[string]error // by row
	applied []string
	samples []client.RowSample
	views   []string // that were opened
}

func (f *fakeTable) Apply(_ context.Context, m *client.RowMutation, _ ...client.ApplyOption) error {
	f.applied = append(f.applied, m.Row())
	return f.errs[m.Row()]
}

func (f *fakeTable) ApplyAll(ctx context.Context, ms []*client.RowMutation, _ ...client.ApplyOption) error {
	e := &client.BatchError{Errs: make([]error, len(ms))}
	for i, m := range ms {
		if e.Errs[i] = f.Apply(ctx, m); e.Errs[i] != nil {
			e.Failed++
		}
	}
	if e.Failed == 0 {
		return nil
	}
	return e
}

func (f *fakeTable) ReadModifyWriteWithin(_ context.Context, row string, _ int64, rules ...table.Rule) (*table.Row, error) {
	r := &table.Row{Key: []byte(row)}
	for i, rule := range rules {
		r.Cells = append(r.Cells, table.Cell{Family: rule.Family, Qualifier: rule.Qualifier, Timestamp: int64(i), Value: rule.Value})
	}
	return r, f.errs[row]
}

func (f *fakeTable) CheckAndMutate(_ context.Context, row string, _ table.Filter, then, otherwise *client.RowMutation) (bool, error) {
	return then.Len() > otherwise.Len(), f.errs[row]
}

func (f *fakeTable) SampleRowKeys(context.Context) ([]client.RowSample, error) { return f.samples, nil }

func (f *fakeTable) service() *Service {
	return New(Config{Sessions: true, Open: func(_ context.Context, name, view string) (Table, error) {
		if name != "t" {
			return nil, client.ErrNoTable
		}
		f.views = append(f.views, view)
		return f, nil
	}})
}

func set(timestamp int64) *bigtablepb.Mutation {
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "f", TimestampMicros: timestamp}}}
}

func addTo(input *bigtablepb.Value) *bigtablepb.Mutation {
	a := &bigtablepb.Mutation_AddToCell{FamilyName: "f", ColumnQualifier: &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: []byte("q")}},
		Timestamp: &bigtablepb.Value{Kind: &bigtablepb.Value_RawTimestampMicros{RawTimestampMicros: 1000}}, Input: input}
	return &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_AddToCell_{AddToCell: a}}
}

// TestOperands: AddToCell and MergeToCell become operands; what their values cannot be is rejected.
func TestOperands(t *testing.T) {
	raw := func(b []byte) *bigtablepb.Value {
		return &bigtablepb.Value{Kind: &bigtablepb.Value_RawValue{RawValue: b}}
	}
	merge := &bigtablepb.Mutation_MergeToCell{FamilyName: "f", Input: raw(table.Integer(9))}
	for _, tc := range []struct {
		from *bigtablepb.Mutation
		want table.Mutation
	}{
		{addTo(&bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: -3}}), table.Add("f", []byte("q"), 1000, -3)},
		{&bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: merge}}, table.Merge("f", nil, 0, table.Integer(9))},
	} {
		if got, err := mutation(0, tc.from); err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%v: %+v, %v", tc.from, got, err)
		}
	}
	for _, bad := range []*bigtablepb.Mutation_MergeToCell{
		{FamilyName: "f", Input: &bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{}}},
		{FamilyName: "f", Input: raw(nil), ColumnQualifier: &bigtablepb.Value{Kind: &bigtablepb.Value_StringValue{}}},
		{FamilyName: "f", Input: raw(nil), Timestamp: &bigtablepb.Value{Kind: &bigtablepb.Value_TimestampValue{}}},
	} {
		if _, err := mutation(0, &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_MergeToCell_{MergeToCell: bad}}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestIdempotencyToken: a token is passed on where a client relies on it, so that what has an unknown outcome can be sent again, and nowhere else.
func TestIdempotencyToken(t *testing.T) {
	f := &fakeTable{errs: map[string]error{"r": &client.AmbiguousError{Err: context.DeadlineExceeded}}}
	at := func(seconds int64) *timestamppb.Timestamp {
		return &timestamppb.Timestamp{Seconds: seconds, Nanos: 7000}
	}
	plain, started := &bigtablepb.Idempotency{Token: []byte("12345678")}, &bigtablepb.Idempotency{Token: []byte("12345678"), StartTime: at(2)}
	zero := &bigtablepb.Idempotency{Token: []byte("12345678"), StartTime: &timestamppb.Timestamp{}}
	bad := &bigtablepb.Idempotency{Token: []byte("12345678"), StartTime: at(-2)}
	add := addTo(&bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 3}})
	for _, tc := range []struct {
		m     *bigtablepb.Mutation
		token *bigtablepb.Idempotency
		want  codes.Code
		sent  *table.Token
	}{
		{set(-1), bad, codes.Unknown, nil},
		{add, nil, codes.Unknown, nil},
		{add, plain, codes.Unavailable, &table.Token{ID: []byte("12345678")}},
		{add, zero, codes.Unavailable, &table.Token{ID: []byte("12345678")}},
		{add, started, codes.Unavailable, &table.Token{ID: []byte("12345678"), Start: 2_000_007}},
		{add, bad, codes.InvalidArgument, nil},
	} {
		token := tc.token
		if m, _, err := tokened([]byte("r"), []*bigtablepb.Mutation{tc.m}, token); err == nil && !reflect.DeepEqual(m.Token(), tc.sent) {
			t.Errorf("%v, %v: token %v", tc.m, token, m.Token())
		}
		_, err := f.service().MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte("r"), Mutations: []*bigtablepb.Mutation{tc.m}, Idempotency: token})
		if status.Code(err) != tc.want {
			t.Errorf("%v: %v", tc.m, err)
		}
		s := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
		entry := &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("r"), Mutations: []*bigtablepb.Mutation{tc.m}, Idempotency: token}
		err = mutateRows(t, f.service(), &bigtablepb.MutateRowsRequest{TableName: tableName, Entries: []*bigtablepb.MutateRowsRequest_Entry{entry}}, s)
		if err != nil || s.sent[0].Entries[0].Status.Code != int32(tc.want) {
			t.Errorf("%v: %v, %v", tc.m, s.sent, err)
		}
	}
}

// answers is a stream that keeps messages.
type answers[M any] struct {
	grpc.ServerStream
	ctx  context.Context
	sent []*M
}

func (a *answers[M]) Context() context.Context { return a.ctx }
func (a *answers[M]) Send(m *M) error          { a.sent = append(a.sent, m); return nil }

// TestMutateRow: whether the outcome is unknown decides the code together with the timestamps.
func TestMutateRow(t *testing.T) {
	f := &fakeTable{errs: map[string]error{"unsure": &client.AmbiguousError{Err: context.DeadlineExceeded}, "family": client.ErrNoFamily}}
	remove := &bigtablepb.Mutation{Mutation: &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}}
	add := addTo(&bigtablepb.Value{Kind: &bigtablepb.Value_IntValue{IntValue: 3}})
	for _, c := range []struct {
		table, row string
		mutations  []*bigtablepb.Mutation
		want       codes.Code
	}{
		{tableName, "r", []*bigtablepb.Mutation{set(-1)}, codes.OK},
		{tableName, "unsure", []*bigtablepb.Mutation{set(1), set(-1)}, codes.Unknown},
		{tableName, "unsure", []*bigtablepb.Mutation{set(1), remove}, codes.Unavailable},
		{tableName, "family", []*bigtablepb.Mutation{set(1)}, codes.NotFound},
		{tableName, "r", nil, codes.InvalidArgument},
		{tableName, "r", []*bigtablepb.Mutation{{}}, codes.InvalidArgument},
		{tableName, "r", []*bigtablepb.Mutation{add}, codes.OK},
		{tableName, "unsure", []*bigtablepb.Mutation{set(1), add}, codes.Unknown},
		{tableName, "r", []*bigtablepb.Mutation{addTo(nil)}, codes.InvalidArgument},
		{tableName, "r", []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_AddToCell_{}}}, codes.InvalidArgument},
		{tableName, "r", []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_MergeToCell_{}}}, codes.InvalidArgument},
		{"t", "r", []*bigtablepb.Mutation{set(1)}, codes.InvalidArgument},
		{strings.Replace(tableName, "tables/t", "tables/x", 1), "r", []*bigtablepb.Mutation{set(1)}, codes.NotFound},
	} {
		_, err := f.service().MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: c.table, RowKey: []byte(c.row), Mutations: c.mutations})
		if status.Code(err) != c.want {
			t.Errorf("%s, row %s, %v: %v, want %v", c.table, c.row, c.mutations, err, c.want)
		}
	}
}

// TestMutateRows: each index is answered once, with its own status (GB4).
func TestMutateRows(t *testing.T) {
	f := &fakeTable{errs: map[string]error{"b": client.ErrNoFamily, "d": client.ErrOverloaded}}
	req := &bigtablepb.MutateRowsRequest{TableName: tableName}
	want := map[string]codes.Code{"a": codes.OK, "b": codes.NotFound, "c": codes.InvalidArgument, "d": codes.Unavailable, "e": codes.InvalidArgument, "f": codes.OK}
	for _, row := range []string{"a", "b", "c", "d", "e", "f"} {
		e := &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(row), Mutations: []*bigtablepb.Mutation{set(-1)}}
		switch row {
		case "c":
			e.Mutations = nil
		case "e":
			e.Mutations = append(e.Mutations, &bigtablepb.Mutation{})
		}
		req.Entries = append(req.Entries, e)
	}
	stream := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
	if err := mutateRows(t, f.service(), req, stream); err != nil {
		t.Fatal(err)
	}
	if len(stream.sent) != 1 || len(stream.sent[0].Entries) != len(req.Entries) {
		t.Fatalf("%v, want one message with all entries", stream.sent)
	}
	for i, e := range stream.sent[0].Entries {
		row := string(req.Entries[i].RowKey)
		if e.Index != int64(i) || e.Status == nil || codes.Code(e.Status.Code) != want[row] {
			t.Errorf("row %s: %v, want %v", row, e, want[row])
		}
	}
	if got := strings.Join(f.applied, ""); got != "abdf" {
		t.Errorf("applied %s, want abdf", got)
	}
	f.errs = nil
	stream.sent = nil
	if err := mutateRows(t, f.service(), &bigtablepb.MutateRowsRequest{TableName: tableName}, stream); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no entries: %v", err)
	}
}

func TestRateLimit(t *testing.T) {
	if i := rateLimit((&entries{errs: []error{nil, client.ErrNoFamily}}).overloaded()); i.Factor != faster || i.Period.AsDuration() != rateLimitPeriod {
		t.Errorf("%v", i)
	}
	if i := rateLimit((&entries{errs: []error{nil, client.ErrOverloaded, nil}}).overloaded()); i.Factor != slower {
		t.Errorf("%v", i)
	}
}

func TestModify(t *testing.T) {
	s := (&fakeTable{errs: map[string]error{"number": table.ErrBadValue}}).service()
	rules := []*bigtablepb.ReadModifyWriteRule{
		{FamilyName: "f", ColumnQualifier: []byte("a"), Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: []byte("x")}},
		{FamilyName: "g", ColumnQualifier: []byte("a"), Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: []byte("y")}},
		{FamilyName: "g", ColumnQualifier: []byte("b"), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}},
	}
	got, err := s.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableName, RowKey: []byte("r"), Rules: rules})
	if err != nil || len(got.Row.Families) != 2 || len(got.Row.Families[1].Columns) != 2 || string(got.Row.Families[0].Columns[0].Cells[0].Value) != "x" {
		t.Errorf("%v, %v", got, err)
	}
	for row, want := range map[string]codes.Code{"number": codes.FailedPrecondition} {
		if _, err := s.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableName, RowKey: []byte(row), Rules: rules}); status.Code(err) != want {
			t.Errorf("row %s: %v, want %v", row, err, want)
		}
	}
	if _, err := s.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableName, Rules: []*bigtablepb.ReadModifyWriteRule{{}}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a rule that is not set: %v", err)
	}
	check := &bigtablepb.CheckAndMutateRowRequest{TableName: tableName, RowKey: []byte("r"), TrueMutations: []*bigtablepb.Mutation{set(1)}}
	if got, err := s.CheckAndMutateRow(t.Context(), check); err != nil || !got.PredicateMatched {
		t.Errorf("%v, %v", got, err)
	}
	check.TrueMutations = nil
	if _, err := s.CheckAndMutateRow(t.Context(), check); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no mutations: %v", err)
	}
}

// TestSamples: offsets strictly increase, and a range is respected.
func TestSamples(t *testing.T) {
	f := &fakeTable{samples: []client.RowSample{{Key: []byte("b"), Offset: 0}, {Key: []byte("d"), Offset: 0}, {Key: []byte("f"), Offset: 90}, {Offset: 90}}}
	for _, c := range []struct{ start, end, want string }{
		{"", "", "b=1 d=2 f=90 =91"},
		{"b", "", "d=1 f=90 =91"},
		{"c", "e", "d=1 e=90"},
		{"", "b", "b=1"},
		{"g", "h", "h=1"},
	} {
		stream := &answers[bigtablepb.SampleRowKeysResponse]{ctx: t.Context()}
		req := &bigtablepb.SampleRowKeysRequest{TableName: tableName, RowRange: &bigtablepb.RowRange{
			StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte(c.start)}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte(c.end)}}}
		if err := f.service().SampleRowKeys(req, stream); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range stream.sent {
			got = append(got, fmt.Sprintf("%s=%d", s.RowKey, s.OffsetBytes))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("[%s, %s): %v, want %s", c.start, c.end, got, c.want)
		}
	}
}

// TestUnsupported: what does not exist is answered with a sentence.
func TestUnsupported(t *testing.T) {
	s := (&fakeTable{}).service()
	_, query := s.PrepareQuery(t.Context(), nil)
	view := s.SampleRowKeys(&bigtablepb.SampleRowKeysRequest{MaterializedViewName: "v"}, &answers[bigtablepb.SampleRowKeysResponse]{ctx: t.Context()})
	for _, err := range []error{query, view, s.ExecuteQuery(nil, nil), s.OpenMaterializedView(nil)} {
		if got := status.Convert(err); got.Code() != codes.Unimplemented || !strings.HasSuffix(got.Message(), ".") {
			t.Errorf("%v, want UNIMPLEMENTED with a sentence", err)
		}
	}
	if _, err := s.PingAndWarm(t.Context(), &bigtablepb.PingAndWarmRequest{Name: "projects/p/instances/i"}); err != nil {
		t.Error(err)
	}
}

// TestClientConfiguration: clients use sessions as long as there is memory for them.
func TestClientConfiguration(t *testing.T) {
	var before *bigtablepb.SessionClientConfiguration_SessionPoolConfiguration
	again := (&fakeTable{}).service()
	for range 3 { // each differs, so that clients try again to open sessions
		c, err := again.GetClientConfiguration(t.Context(), &bigtablepb.GetClientConfigurationRequest{InstanceName: "projects/p/instances/i"})
		if err != nil || proto.Equal(c.SessionConfiguration.SessionPoolConfiguration, before) {
			t.Errorf("%v, %v", c, err)
		}
		before = c.SessionConfiguration.SessionPoolConfiguration
	}
	full := New(Config{Sessions: true, AdmitSession: func(context.Context) (func(), bool) { return nil, false }, Open: func(context.Context, string, string) (Table, error) { return nil, nil }})
	for load, s := range map[float32]*Service{1: (&fakeTable{}).service(), 0: full} {
		c, err := s.GetClientConfiguration(t.Context(), &bigtablepb.GetClientConfigurationRequest{InstanceName: "projects/p/instances/i"})
		if err != nil || c.SessionConfiguration.GetSessionLoad() != load || c.GetPollingConfiguration() == nil {
			t.Errorf("%v, %v, want load %v", c, err, load)
		}
	}
	if err := full.OpenTable(&wire{ctx: t.Context(), to: handshakes()}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a session without memory: %v", err)
	}
}

// missingTable does not exist.
type missingTable struct{ Table }

func (missingTable) ApplyAll(_ context.Context, ms []*client.RowMutation, _ ...client.ApplyOption) error {
	e := &client.BatchError{Errs: make([]error, len(ms)), Failed: len(ms)}
	for i := range ms {
		e.Errs[i] = client.ErrNoTable
	}
	return e
}

func (missingTable) Get(context.Context, string, ...client.ReadOption) (*table.Row, error) {
	return nil, client.ErrNoTable
}

// TestMissingTable: a call fails as a whole if the table does not exist, whatever it is about.
func TestMissingTable(t *testing.T) {
	s := New(Config{Open: func(context.Context, string, string) (Table, error) { return missingTable{}, nil }})
	entries := []*bigtablepb.MutateRowsRequest_Entry{{RowKey: []byte("r"), Mutations: []*bigtablepb.Mutation{set(1)}}, {RowKey: []byte("s"), Mutations: []*bigtablepb.Mutation{set(1)}}, {}}
	write := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
	if err := mutateRows(t, s, &bigtablepb.MutateRowsRequest{TableName: tableName, Entries: entries}, write); status.Code(err) != codes.NotFound || len(write.sent) > 0 {
		t.Errorf("%v, answers %v", err, write.sent)
	}
	empty := &bigtablepb.RowSet{RowRanges: []*bigtablepb.RowRange{{StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte("a")}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte("a")}}}}
	if err := s.ReadRows(&bigtablepb.ReadRowsRequest{TableName: tableName, Rows: empty}, &answers[bigtablepb.ReadRowsResponse]{ctx: t.Context()}); status.Code(err) != codes.NotFound {
		t.Errorf("a read of no rows: %v", err)
	}
}
