package node_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node/replication"
)

// TestReplicationCut (RE1, RE4): the master stops while changes that it has read wait for the rate of the replication. The next one makes them.
func TestReplicationCut(t *testing.T) {
	t.Parallel()
	if problem := lostByReplicationCut(t); problem != "" {
		t.Error(problem)
	}
}

// lostByReplicationCut stops the worker between the read of changes and their making, starts it again, and describes a row that the follower lacks then; empty if there
// is none.
func lostByReplicationCut(t *testing.T) (problem string) {
	r := newReplicated(t, 1)
	// The burst of the rate is 4 MiB. So four of the rows are made at once, and the fifth one waits for about four seconds.
	const rows, size, rate = 5, 900 << 10, 100 << 10
	if err := r.to.c.Replications().Create(r.ctx, &client.ReplicationSpec{Name: "east", Addrs: r.from.addrs, Tables: []string{"t"}, Rate: rate}); err != nil {
		t.Fatal(err)
	}
	r.equal("after the copy")
	value := make([]byte, size)
	for i := range rows {
		if err := r.from.c.Table("t").Apply(r.ctx, client.NewRowMutation(fmt.Sprintf("row04%d", i)).Set("g:q", value)); err != nil {
			t.Fatal(err)
		}
	}
	before := fmt.Sprintf("row04%d", rows-2)
	for end := time.Now().Add(20 * time.Second); good(r.to.c.Table("t").Get(r.ctx, before)) == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no row %s: %+v", before, good(r.to.c.Replications().List(r.ctx)))
		}
	}
	time.Sleep(500 * time.Millisecond) // until the last one is read
	r.to.stop(0)
	r.to.start(0)
	r.to.c = r.to.client(0)
	for range 20 {
		r.x.step()
	}
	if !r.becomesEqual(20 * time.Second) {
		want, got := r.from.rows("t"), r.to.rows("t")
		maps.DeleteFunc(want, func(row, cells string) bool { return got[row] == cells })
		for row := range want {
			return fmt.Sprintf("row %s differs: %d bytes, want %d; progress %q", row, len(got[row]), len(want[row]), good(r.to.nodes[0].File(r.ctx, replication.StateDir+"/east/t")))
		}
		return "rows that the source does not have"
	}
	return ""
}
