package bigtable

import (
	"context"
	"slices"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/table"
)

const viewName = tableName + "/authorizedViews/v"

// viewCalls makes each call that can name an authorized view, with that name and the name of a table.
func viewCalls(t *testing.T, s *Service, tableName, viewName string) map[string]error {
	t.Helper()
	row, mutations := []byte("r"), []*bigtablepb.Mutation{set(1)}
	_, mutate := s.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, AuthorizedViewName: viewName, RowKey: row, Mutations: mutations})
	_, check := s.CheckAndMutateRow(t.Context(), &bigtablepb.CheckAndMutateRowRequest{TableName: tableName, AuthorizedViewName: viewName, RowKey: row, TrueMutations: mutations})
	_, modify := s.ReadModifyWriteRow(t.Context(), &bigtablepb.ReadModifyWriteRowRequest{TableName: tableName, AuthorizedViewName: viewName, RowKey: row})
	entries := []*bigtablepb.MutateRowsRequest_Entry{{RowKey: row, Mutations: mutations}}
	return map[string]error{
		"mutate": mutate, "check": check, "modify": modify,
		"batch":  mutateRows(t, s, &bigtablepb.MutateRowsRequest{TableName: tableName, AuthorizedViewName: viewName, Entries: entries}, &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}),
		"sample": s.SampleRowKeys(&bigtablepb.SampleRowKeysRequest{TableName: tableName, AuthorizedViewName: viewName}, &answers[bigtablepb.SampleRowKeysResponse]{ctx: t.Context()}),
	}
}

// TestViewNames: a request about an authorized view opens it. A name that is malformed, or contradicts that of the table, is rejected.
func TestViewNames(t *testing.T) {
	for _, c := range []struct {
		table, view string
		want        codes.Code
	}{
		{"", viewName, codes.OK},
		{tableName, viewName, codes.OK},
		{tableName + "2", viewName, codes.InvalidArgument},
		{"", tableName + "/authorizedViews/", codes.InvalidArgument},
		{"", "v", codes.InvalidArgument},
		{"", "projects/p/instances/i/tables/x/authorizedViews/v", codes.NotFound},
	} {
		f := &fakeTable{}
		for call, err := range viewCalls(t, f.service(), c.table, c.view) {
			if status.Code(err) != c.want {
				t.Errorf("%s of %q and %q: %v, want %v", call, c.table, c.view, err, c.want)
			}
		}
		if c.want == codes.OK && !slices.Equal(f.views, []string{"v", "v", "v", "v", "v"}) {
			t.Errorf("opened the views %q", f.views)
		}
	}
}

// TestNoView: a view that does not exist is NOT_FOUND, also for all entries of a MutateRows.
func TestNoView(t *testing.T) {
	f := &fakeTable{errs: map[string]error{"r": &table.NoViewError{Table: "t", View: "v"}}}
	for call, err := range viewCalls(t, f.service(), "", viewName) {
		if call != "sample" && status.Code(err) != codes.NotFound {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestViewMessages (GB1): the virtual RPCs of a session about a view, and their answers, have the encoding of those about a table.
func TestViewMessages(t *testing.T) {
	for _, pair := range [][2]proto.Message{
		{&bigtablepb.TableRequest{}, &bigtablepb.AuthorizedViewRequest{}}, {&bigtablepb.TableResponse{}, &bigtablepb.AuthorizedViewResponse{}},
	} {
		of, view := pair[0].ProtoReflect().Descriptor().Fields(), pair[1].ProtoReflect().Descriptor().Fields()
		if of.Len() != view.Len() {
			t.Errorf("%T has %d fields, and %T has %d", pair[0], of.Len(), pair[1], view.Len())
		}
		for i := range of.Len() {
			a, b := of.Get(i), view.Get(i)
			if a.Number() != b.Number() || a.Kind() != b.Kind() || a.Message().FullName() != b.Message().FullName() {
				t.Errorf("%v of %T differs from %v of %T", a, pair[0], b, pair[1])
			}
		}
	}
	for from, to := range map[bigtablepb.OpenTableRequest_Permission]bigtablepb.OpenAuthorizedViewRequest_Permission{
		bigtablepb.OpenTableRequest_PERMISSION_READ: bigtablepb.OpenAuthorizedViewRequest_PERMISSION_READ, bigtablepb.OpenTableRequest_PERMISSION_WRITE: bigtablepb.OpenAuthorizedViewRequest_PERMISSION_WRITE,
	} {
		if int(from) != int(to) {
			t.Errorf("%v differs from %v", from, to)
		}
	}
}

// TestViewSession: a session about a view opens it for each virtual RPC, and keeps to its permission.
func TestViewSession(t *testing.T) {
	var opened []string
	s := New(Config{Peer: Peer{Node: "n1", Zone: "z1"}, Open: func(_ context.Context, name, view string) (Table, error) {
		opened = append(opened, name+"/"+view)
		return sessionTable{fail: func(context.Context, string) error { return nil }}, nil
	}})
	w := &wire{ctx: t.Context(), to: make(chan *bigtablepb.SessionRequest), from: make(chan *bigtablepb.SessionResponse, 100), result: make(chan error, 1), service: s}
	go func() { w.result <- s.OpenAuthorizedView(w) }()
	w.to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_OpenSession{OpenSession: &bigtablepb.OpenSessionRequest{
		Payload: encode(&bigtablepb.OpenAuthorizedViewRequest{AuthorizedViewName: viewName, Permission: bigtablepb.OpenAuthorizedViewRequest_PERMISSION_WRITE})}}}
	<-w.from
	<-w.from
	w.send(writeOf("r"))
	w.send(readOf("r"))
	for _, want := range []string{"1 z1 mutate_row:{}", "2 PermissionDenied retry=false"} {
		if got := describe(<-w.from); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if err := w.close(); err != nil || len(opened) != 3 || opened[1] != "t/v" {
		t.Errorf("%v, opened %q", err, opened)
	}
	bad := &wire{ctx: t.Context(), to: make(chan *bigtablepb.SessionRequest, 1)}
	bad.to <- <-handshakes() // names a table
	if err := s.OpenAuthorizedView(bad); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a view: %v", err)
	}
}
