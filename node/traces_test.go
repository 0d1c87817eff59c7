package node_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

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

// TestClientTraces: calls of the Go client belong to the trace of their context. If its span is recorded, each has a span of its own below it,
// which is the parent of the nodes' spans.
func TestClientTraces(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	tab, exported := c.Table("t"), tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
	parent := trace.Context{ID: trace.NewID(), Span: trace.NewSpanID(), Sampled: true}
	remote, ok := client.WithTraceparent(ctx, parent.String())
	if !ok {
		t.Fatal("a traceparent is rejected")
	}
	recorded, span := provider.Tracer("test").Start(remote, "test")
	for _, ctx := range []context.Context{ctx, remote, recorded} {
		m := client.NewRowMutation("r").Set("f:q", nil)
		if err := errors.Join(tab.Apply(ctx, m), tab.ApplyAll(ctx, []*client.RowMutation{m, m})); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Get(ctx, "r"); err != nil {
			t.Fatal(err)
		}
		s := tab.Scan(ctx)
		for s.Next() {
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	span.End()
	parents := map[string]string{} // names of clients' spans by their ids
	for _, s := range exported.GetSpans() {
		if s.SpanContext.TraceID() != oteltrace.TraceID(parent.ID) {
			t.Errorf("%s has another trace", s.Name)
		}
		parents[s.SpanContext.SpanID().String()] = s.Name
	}
	spans, _, err := tracetree.Gather(ctx, c, parent.ID.String())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, s := range spans {
		if s.Parent == parent.Span.String() {
			got["remote "+s.Method]++
		} else {
			got[parents[s.Parent]+" "+s.Method]++
		}
	}
	want := map[string]int{}
	for _, m := range []string{"mutate", "mutate_rows", "read", "scan_open"} {
		want["remote "+m], want["stele "+m+" "+m] = 1, 1
	}
	if !maps.Equal(got, want) || len(parents) != 5 {
		t.Errorf("%v, want %v; spans of the client: %v", got, want, parents)
	}
	if _, ok := client.WithTraceparent(ctx, "x"); ok {
		t.Error("other text is accepted")
	}
}
