package bigtable

import (
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/metadata"

	"github.com/steledb/stele/client"
)

// TestTraceparent: a call with the W3C's header traceparent has a trace in the node, in the trace of its caller.
func TestTraceparent(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	createTable(t, admin)
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+id+"-"+span+"-01")
	m := []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: "f", TimestampMicros: 1000}}}}
	name := "projects/" + project + "/instances/" + instance + "/tables/" + table
	if _, err := bigtablepb.NewBigtableClient(dial(t, n)).MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: name, RowKey: []byte("r"), Mutations: m}); err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(t.Context(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, err := c.Nodes().Traces(t.Context(), n.RPCAddr(), id)
	if err != nil || len(x.Traces) != 1 {
		t.Fatalf("%+v, %v", x, err)
	}
	if s := x.Traces[0]; s.Method != "mutate" || string(s.Row) != "r" || s.Parent != span {
		t.Errorf("%+v", s)
	}
}
