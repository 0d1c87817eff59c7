package node_test

import (
	"context"
	"sync"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node/replication"
)

// again removes the replication and its table, and creates them again at once.
func (r *replicated) again() {
	r.t.Helper()
	if err := r.to.c.Replications().Remove(r.ctx, "east"); err != nil {
		r.t.Fatal(err)
	}
	if err := r.to.c.Tables().DropNow(r.ctx, "t"); err != nil {
		r.t.Fatal(err)
	}
	r.add()
}

// TestReplicationOfAnotherSourceAtOnce (RE1, RE2): the worker of a replication that was removed makes no change in the table of another one that has its name, and reports
// nothing about it. A request to another node than the master's does not wake the worker.
func TestReplicationOfAnotherSourceAtOnce(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 3)
	r.add()
	r.equal("the first source")
	first, ctx := r.from, r.ctx
	r.from = newBackupCluster(t, 1)
	r.x = newTimed(r.from)
	for range 50 {
		r.x.step()
	}
	r.to.c = r.to.client((r.to.master() + 1) % 3)
	writing, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { // only of the first source
		for writing.Err() == nil {
			_ = first.c.Table("t").Apply(writing, client.NewRowMutation("row of the first source").Set("f:q", []byte("v"))) // until it ends
		}
	})
	r.again()
	for _, x := range good(r.to.c.Replications().List(ctx))[0].Tables {
		if x.LagMS >= 0 && len(r.to.rows("t")) == 0 {
			t.Errorf("before a row is copied: %+v", x)
		}
	}
	r.equal("the second source")
	stop()
	group.Wait()
	r.equal("the second source, at the end")
}

// TestReplicationFromFormerProgress (RE2): progress that a removal has left behind, as one that is cut off by the end of its master, is not that of another table.
func TestReplicationFromFormerProgress(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	r.equal("the first table")
	path := replication.StateDir + "/east/t"
	former := good(r.to.nodes[0].File(r.ctx, path))
	if err := r.to.c.Replications().Remove(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	if err := r.to.c.Tables().DropNow(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := r.to.nodes[0].PutFile(r.ctx, path, former); err != nil {
		t.Fatal(err)
	}
	r.add()
	r.equal("the second table")
}
