package node_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestFilterStage: the trace of a read has the time that its costly filter took.
func TestFilterStage(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	if err := admin.Table("t").Apply(ctx, client.NewRowMutation("slow").Set("f:q", bytes.Repeat([]byte("x"), 120<<10))); err != nil {
		t.Fatal(err)
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	traced, ok := client.WithTraceparent(ctx, "00-"+id+"-b7ad6b7169203331-01")
	if !ok {
		t.Fatal("not a traceparent")
	}
	if _, err := admin.Table("t").Get(traced, "slow", client.Filter(table.ValueRegex(".*"+strings.Repeat("(?:x?)", 20)+"y"))); err != nil {
		t.Fatal(err)
	}
	all, err := admin.Nodes().Traces(ctx, f.nodes[0].RPCAddr(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all.Traces {
		if x.Method == api.MethodRead && slices.ContainsFunc(x.Stages, func(s api.TraceStage) bool { return s.Name == "filter" && s.Took > 0 }) {
			return
		}
	}
	t.Errorf("no time of a filter in %+v", all.Traces)
}
