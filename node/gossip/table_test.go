package gossip

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// tableOf returns a table with n live nodes.
func tableOf(t *testing.T, n int) *table {
	t.Helper()
	tb := &table{}
	tb.init("n0", time.Hour, func(string) bool { return false }, func(logLine) {})
	for i := range n {
		tb.alive(runOf(t, i, 1))
	}
	return tb
}

// runOf returns a run of node i.
func runOf(t *testing.T, i int, start uint64) *memberlist.Node {
	t.Helper()
	m := Meta{ID: fmt.Sprintf("n%d", i), Start: start, RPC: "h:1"}
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	return &memberlist.Node{Name: instanceName(m.ID, m.Start), Meta: b}
}

// What a table does for one node does not depend on the number of the others: with 256 times as many it takes about as long.
func TestOneOfManyNodes(t *testing.T) {
	took := func(n int) time.Duration {
		tb, began := tableOf(t, n), time.Now()
		for range 2000 {
			tb.member("n7")
			tb.alive(runOf(t, 7, 1))
			tb.removalNote("n7")
		}
		return time.Since(began)
	}
	took(16) // warm up
	if few, many := took(16), took(4096); many > 20*few {
		t.Errorf("with 16 nodes %v, with 4096 nodes %v", few, many)
	}
}

// A table has one entry for each node, whatever its runs were.
func TestRunsOfNodes(t *testing.T) {
	tb := tableOf(t, 3)
	expect := func(id string, state State, start uint64) {
		t.Helper()
		if m, known := tb.member(id); !known || m.State != state || m.Start != start || len(tb.members()) != 3 {
			t.Errorf("%s: %+v of %d", id, m, len(tb.members()))
		}
	}
	tb.alive(runOf(t, 1, 2)) // before its earlier run is dead
	expect("n1", Alive, 2)
	tb.dead(instanceName("n1", 1))
	tb.dead(instanceName("n1", 2))
	expect("n1", Dead, 2)
	tb.alive(runOf(t, 1, 3))
	expect("n1", Alive, 3)
	tb.dead(instanceName("n2", 1))
	expect("n2", Dead, 1)
	tb.keep = -1
	tb.prune()
	if _, known := tb.member("n2"); known || tb.count() != 2 || len(tb.mu.byID) != 2 || len(tb.mu.byID["n1"]) != 1 {
		t.Errorf("%d runs, index %v", tb.count(), tb.mu.byID)
	}
}
