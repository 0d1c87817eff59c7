package node_test

import (
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/tracetree"
	"github.com/steledb/stele/table"
)

// TestTraces: a request whose caller samples it has a trace on the node that served it, in the caller's trace and below its span, with what it did.
// Requests of others begin traces of their own, which are not kept while they are quick. TestRequiredRights has the rights to read traces.
func TestTraces(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	ann := f.user(c, "ann")
	if err := c.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read,write"}); err != nil {
		t.Fatal(err)
	}
	conn := f.dialAs(0, ann)
	parent := trace.Context{ID: trace.NewID(), Span: trace.NewSpanID(), Sampled: true}
	o := api.Options{TraceID: []byte(parent.String())}
	m := api.MutateRequest{Row: table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, nil)}}}
	m.Table, m.Options = "t", o
	r := api.ReadRequest{Table: "t", Row: []byte("r")}
	r.Options = o
	for range 2 { // the second one is not sampled
		if e := answerOf(t, conn, api.MethodMutate, m.Append); e != nil {
			t.Fatal(e)
		}
		if e := answerOf(t, conn, api.MethodRead, r.Append); e != nil {
			t.Fatal(e)
		}
		m.TraceID, r.TraceID = nil, []byte("a request")
	}
	spans, unknown, err := tracetree.Gather(ctx, c, parent.ID.String())
	if err != nil || len(unknown) > 0 || len(spans) != 2 {
		t.Fatalf("%+v, %v, %v", spans, unknown, err)
	}
	for i, want := range []struct{ method, stage, count string }{{"mutate", "log replicas", "rows"}, {"read", "tablet read", "tablets"}} {
		s := tracetree.Tree(spans)[i]
		if s.Method != want.method || s.Parent != parent.Span.String() || s.Kept != api.TraceRequested && s.Kept != api.TraceSlow || s.User != "ann" || s.Tablet == 0 || string(s.Row) != "r" {
			t.Errorf("%+v", s)
		}
		if !slices.ContainsFunc(s.Stages, func(x api.TraceStage) bool {
			return x.Name == want.stage && x.Took > 0 && x.After+x.Took <= s.Took+time.Millisecond
		}) {
			t.Errorf("%s has the stages %+v", s.Method, s.Stages)
		}
		if !slices.Contains(s.Counts, api.TraceCount{Name: want.count, N: 1}) {
			t.Errorf("%s has the counts %+v", s.Method, s.Counts)
		}
	}
	if _, err := c.Nodes().Traces(ctx, f.nodes[0].RPCAddr(), "x"); err == nil {
		t.Error("an id that is none is accepted")
	}
}
