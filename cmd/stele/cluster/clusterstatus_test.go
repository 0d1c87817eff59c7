package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

// A status lists problems and unknowns, and nothing else.
func TestClusterProblems(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	x := &clusterStatus{
		Nodes:   []clusterNode{{ID: "a", Name: "n1", State: api.NodeAlive, Tablets: number(3)}, {ID: "b", Name: "n2", State: api.NodeAlive, Tablets: number(0)}},
		Tablets: number(3), Unassigned: number(0), Recovering: number(0),
	}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Known: true, Bytes: 5, Under: 2}, {Node: "b", Known: true, Under: 1}}})
	if got := x.problemLines(); len(got) > 0 || *x.Under != 3 || *x.Nodes[0].Bytes != 5 {
		t.Errorf("%q, %+v", got, x)
	}
	x.Unassigned, x.Recovering, x.Recoveries = number(1), number(2), []string{"c.7"}
	x.Nodes[1].State, x.Nodes[1].Tablets = api.NodeDead, number(4)
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Name: "n1", Error: "silent"}, {Node: "b", Name: "n2", Error: "dead"}}})
	got := strings.Join(x.problemLines(), "\n")
	for _, want := range []string{"1 of 3 tablets unassigned", "4 tablets on node n2, which is dead", "2 tablets recovering from the commit logs of c.7", "block store on node n1: silent"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "n2: dead") {
		t.Errorf("a dead node's state is reported as unknown:\n%s", got)
	}
}

// A node that does not answer is not counted as alive, even if membership has not detected its failure.
func TestStatusOfNodeThatDoesNotAnswer(t *testing.T) {
	x := &clusterStatus{Nodes: []clusterNode{
		{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeAlive, StateForS: 61.4}, {ID: "c", Name: "n3", State: api.NodeAlive},
	}}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{
		{Node: "a", Name: "n1", Known: true}, {Node: "b", Name: "n2", Error: "connection refused"}, {Node: "c", Name: "n3", Known: true},
	}})
	s := &client.Status{Ready: true, Node: "n1", Nodes: 3, NodesAlive: 3}
	if got, want := statusSentence((&cli.App{}), s, x), "degraded: node n1 serves 0 tables in 0 tablets; 2 of 3 nodes alive"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var table bytes.Buffer
	a := &cli.App{Out: bufio.NewWriter(&table)}
	if err := errors.Join(a.Print(x.grid()), a.Out.Flush()); err != nil {
		t.Fatal(err)
	}
	if got := table.String(); !regexp.MustCompile(`(?m)^n1 +alive .*\nn2 +no answer .*\nn3 +alive `).MatchString(got) {
		t.Errorf("the table has another state of n2:\n%s", got)
	}
	if got, want := strings.Join(x.problemLines(), "\n"), "node n2 does not answer; membership has listed it as alive for 1m1s"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q in it", got, want)
	}
}

// Only exhausted quotas of bytes are reported; rates refill.
func TestUsedUpQuotas(t *testing.T) {
	x := &clusterStatus{}
	x.addQuotas([]client.Quota{
		{Of: "table", Name: "web", Bounds: []client.QuotaBound{{Kind: api.QuotaBytes, Limit: 20 << 10, Used: 21 << 10}}},
		{Of: "user", Name: "ann", Bounds: []client.QuotaBound{{Kind: api.QuotaBytes, Limit: 20 << 10, Used: 1}, {Kind: api.QuotaReadOps, Limit: 0, Used: 0}}},
		{Of: "user", Name: "bob", Bounds: []client.QuotaBound{{Kind: api.QuotaBytes, Limit: 20 << 10, Used: -1}}},
	})
	if got := strings.Join(x.problemLines(), "\n"); got != "the quota of table web is exhausted: 21 KiB of 20 KiB; only deletions are accepted" {
		t.Errorf("%q", got)
	}
	if state, _ := clusterState(&client.Status{Ready: true, Nodes: 1, NodesAlive: 1}, x); state != stateHealthy {
		t.Errorf("a user's quota makes the cluster %s", state)
	}
}

// While nodes count their extents after a change of membership, the number of under-replicated
// extents is unknown, not 0.
func TestStatusWhileExtentsAreCounted(t *testing.T) {
	x := &clusterStatus{Nodes: []clusterNode{{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeAlive}}}
	store := &client.StoreStatus{ReplicationFactor: 3, Nodes: []client.NodeStore{{Node: "a", Name: "n1", Known: true, Bytes: 5, Under: 2}, {Node: "b", Name: "n2", Bytes: 7, Under: 1}}}
	x.addStore(store)
	want := "unknown: number of under-replicated extents: n2 still counting, after a node has joined or left"
	if got := x.problemLines(); x.Under != nil || x.Nodes[1].Under != nil || *x.Nodes[0].Under != 2 || *x.Nodes[1].Bytes != 7 || len(got) != 1 || got[0] != want {
		t.Errorf("%q, %+v", got, x)
	}
	s := &client.Status{Ready: true, Node: "n1", Nodes: 2, NodesAlive: 2, Counting: true}
	if got := statusSentence((&cli.App{}), s, &clusterStatus{}); got != "degraded: node n1 serves 0 tables in 0 tablets; 2 of 2 nodes alive; under-replicated extents not counted yet" {
		t.Errorf("%s", got)
	}
	if j := statusOf(s); j.UnderReplicated != nil {
		t.Errorf("under_replicated is %d while it is counted", *j.UnderReplicated)
	}
	if s.Counting = false; *statusOf(s).UnderReplicated != 0 {
		t.Errorf("under_replicated is %d", *statusOf(s).UnderReplicated)
	}
}
