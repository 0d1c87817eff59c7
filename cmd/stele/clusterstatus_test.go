package main

import (
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// A status says what is wrong, what is not known, and nothing else.
func TestClusterTroubles(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	x := &clusterJSON{
		Nodes:   []clusterNodeJSON{{ID: "a", Name: "n1", State: api.NodeAlive, Tablets: number(3)}, {ID: "b", Name: "n2", State: api.NodeAlive, Tablets: number(0)}},
		Tablets: number(3), Unassigned: number(0), Recovering: number(0),
	}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Bytes: 5, Under: 2}, {Node: "b", Under: 1}}})
	if got := x.troubles(); len(got) > 0 || *x.Under != 3 || *x.Nodes[0].Bytes != 5 {
		t.Errorf("%q, %+v", got, x)
	}
	x.Unassigned, x.Recovering, x.Recoveries = number(1), number(2), []string{"c.7"}
	x.Nodes[1].State, x.Nodes[1].Tablets = api.NodeDead, number(4)
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Name: "n1", Error: "silent"}, {Node: "b", Name: "n2", Error: "dead"}}})
	got := strings.Join(x.troubles(), "\n")
	for _, want := range []string{"1 of 3 tablets on no node", "4 tablets on node n2, which is dead", "2 tablets with what the commit logs of c.7 have", "block store on node n1 is: silent"} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "n2 is: dead") {
		t.Errorf("a dead node is not one of unknown state:\n%s", got)
	}
}
