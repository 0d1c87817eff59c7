package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

// A status counts unserved tablets, lists some with the cause, and is not healthy.
func TestStatusListsUnserved(t *testing.T) {
	u := &client.UnservedTablets{Total: 9, Tablets: []client.UnservedTablet{
		{Table: "t", End: []byte("m"), Node: "a", Server: "a.7", Since: 90 * time.Second, Tries: 12, Error: "a file is damaged"},
		{Table: "t", Start: []byte("m"), Since: 7 * time.Second, Error: "no server"},
	}}
	for range 5 {
		u.Tablets = append(u.Tablets, client.UnservedTablet{Table: strings.Repeat("x", 3), Error: "e"})
	}
	one := int64(1)
	x := &clusterStatus{Nodes: []clusterNode{{ID: "a", Name: "n1", State: api.NodeAlive}}, Tablets: &one, Unassigned: &one}
	x.addUnserved(u)
	got := x.problemLines()
	want := []string{
		`not served: table t, rows from (first) to "m", for 1m30s; assigned to node n1 (server a.7) in METADATA; 12 attempts failed, the last: a file is damaged`,
		`not served: table t, rows from "m" to (last), for 7s; not assigned in METADATA: no server`,
	}
	if len(got) != unservedShown+1 || got[0] != want[0] || got[1] != want[1] || got[5] != "not served: 4 tablets more" {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	s := &client.Status{Ready: true, Node: "n1", Nodes: 3, NodesAlive: 3}
	if got := statusSentence((&cli.App{}), s, x); got != "degraded: node n1 serves 0 tables in 0 tablets; 3 of 3 nodes alive; 9 tablets of the cluster not served" {
		t.Errorf("%s", got)
	}
	if got := statusSentence((&cli.App{}), s, &clusterStatus{}); !strings.HasPrefix(got, "healthy: ") {
		t.Errorf("%s", got)
	}
}
