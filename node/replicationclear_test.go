package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/replication"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestReplicationClears (RE1, RE2): ranges of rows that are cleared in the source are deleted in the follower, between the changes before and after, while rows are copied and
// changes are made, tablets of both sides split and merge, and either side restarts.
func TestReplicationClears(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	steps := func(n int) {
		for i := range n {
			r.x.step()
			switch i % 25 {
			case 3, 17:
				r.x.clear()
			case 9:
				r.x.tablets()
			case 21:
				_, _ = r.to.c.Tablets().Split(r.ctx, "t", fmt.Sprintf("row%03d", i%60)) // a tablet may end there
			}
		}
	}
	done := make(chan struct{})
	go func() { // while the rows are copied
		defer close(done)
		steps(150)
	}()
	r.add()
	<-done
	r.equal("after the copy")
	for range 3 {
		steps(60)
		r.equal("after clears")
	}
	if err := r.from.c.Tables().ClearRows(r.ctx, "t", "", ""); err != nil {
		t.Fatal(err)
	}
	r.x.step()
	r.equal("after all rows were cleared")
	steps(100)
	r.to.stop(0)
	steps(50)
	r.to.start(0)
	r.to.c = r.to.client(0)
	r.equal("after a restart")
	r.from.stop(0)
	r.from.start(0)
	r.from.c = r.from.client(0)
	steps(30)
	r.equal("after a restart of the source")
}

// TestReplicationClearCut (RE1, RE2): the master stops while it deletes the rows of a clear, and others were written again since. The next one completes the
// clear, and deletes no later change.
func TestReplicationClearCut(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	src := r.from.c.Table("t")
	batch := func(from, to int, value string) {
		t.Helper()
		var group errgroup.Group
		group.SetLimit(32)
		for i := from; i < to; i++ {
			group.Go(func() error {
				return src.Apply(r.ctx, client.NewRowMutation(fmt.Sprintf("many%05d", i)).Set("f:q", []byte(value)).AddInt("sum:n", 0, 1))
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	batch(0, 2000, "before")
	// Each deletion counts with its key: the burst of the rate is 4 MiB, and the rest takes seconds.
	if err := r.to.c.Replications().Create(r.ctx, &client.ReplicationSpec{Name: "east", Addrs: r.from.addrs, Tables: []string{"t"}, Rate: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	r.equal("after the copy")
	filler := make([]byte, 860<<10)
	for i := range 5 { // uses the burst up
		if err := src.Apply(r.ctx, client.NewRowMutation(fmt.Sprint("filler", i)).Set("g:q", filler)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.from.c.Tables().ClearRows(r.ctx, "t", "many", "many9"); err != nil {
		t.Fatal(err)
	}
	batch(500, 1500, "after")
	left := func() (n int) {
		s := r.to.c.Table("t").Scan(r.ctx, client.Start("many"), client.End("many9"), client.Columns("sum:n"))
		defer s.Close()
		for s.Next() {
			n++
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if n := left(); n < 2000 {
			t.Logf("stopped with %d rows left", n)
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing is deleted: %+v", good(r.to.c.Replications().List(r.ctx)))
		}
	}
	r.to.stop(0)
	r.to.start(0)
	r.to.c = r.to.client(0)
	if n := left(); n == 0 || n >= 2000 {
		t.Errorf("%d rows when the next master begins", n)
	}
	if !r.becomesEqual(2 * time.Minute) {
		r.equal("after the clear")
	}
}

// TestReplicationLargeRowCleared (RE1, RE2): a row that is cleared, and written again, while it is copied in parts has only what came after.
func TestReplicationLargeRowCleared(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	src := r.from.c.Table("t")
	fill := func(value string) {
		t.Helper()
		for i := 0; i < 120_000; {
			m := client.NewRowMutation("wide")
			for ; i < 120_000 && m.Len() < 40_000; i++ {
				m.SetAt(fmt.Sprintf("g:%06d", i), 1000, []byte(value))
			}
			if err := src.Apply(r.ctx, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill("before")
	if err := r.to.c.Replications().Create(r.ctx, &client.ReplicationSpec{Name: "east", Addrs: r.from.addrs, Tables: []string{"t"}, Rate: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	copied := func() int {
		row, err := r.to.c.Table("t").Get(r.ctx, "wide", client.RowBytesMax(64<<20))
		if err != nil || row == nil {
			return 0
		}
		return len(row.Cells)
	}
	for end := time.Now().Add(60 * time.Second); copied() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no cell is copied: %+v", good(r.to.c.Replications().List(r.ctx)))
		}
	}
	if err := r.from.c.Tables().ClearRows(r.ctx, "t", "wide", "wide\x00"); err != nil {
		t.Fatal(err)
	}
	n := copied()
	t.Logf("%d cells are copied when the row is cleared", n)
	for _, column := range []string{"g:000001", "g:119999", "f:q"} {
		if err := src.Apply(r.ctx, client.NewRowMutation("wide").SetAt(column, 1000, []byte("after"))); err != nil {
			t.Fatal(err)
		}
	}
	r.equal("after the copy")
}

// TestReplicationOfEarlierSource: a source of an earlier version is an error that names the remedy, and not followed without its clears.
func TestReplicationOfEarlierSource(t *testing.T) {
	t.Parallel()
	to, s := newBackupCluster(t, 1), newFakeSource(t, "old")
	s.handlers.Store(&map[string]func(c *rpc.Call){api.MethodReadChanges: func(c *rpc.Call) {
		var r api.ReadChangesRequest
		err := r.Decode(&c.Params, c.NumParams, nil)
		if err == nil && r.Clears {
			err = rpc.Errorf(rpc.CodeBadRequest, "unknown option %.40q", "clears") // as optionError of package api
		}
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(pageOf(&api.ChangesResult{End: r.End, Next: 10, Families: 2}))
	}})
	if err := to.c.Replications().Create(to.ctx, &client.ReplicationSpec{Name: "old", Addrs: []string{s.addr}, Tables: []string{"old"}}); err != nil {
		t.Fatal(err)
	}
	x := api.ReplicationTable{}
	for end := time.Now().Add(20 * time.Second); !strings.Contains(x.Error, "update the source before this cluster"); time.Sleep(20 * time.Millisecond) {
		if x = good(to.c.Replications().List(to.ctx))[0].Tables[0]; time.Now().After(end) {
			t.Fatalf("%+v", x)
		}
	}
	if x.State != api.ReplicationFailed || x.Rows > 0 {
		t.Errorf("%+v", x)
	}
}

// TestReplicationFromEarlierProgress (RE2): progress of a version that left clears out is not continued: the rows are copied again.
func TestReplicationFromEarlierProgress(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	r.equal("after the copy")
	if err := r.to.c.Replications().Pause(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until it has stopped
	master, path := r.to.nodes[0], replication.StateDir+"/east/t"
	stale := good(r.to.c.Table("t").Follow(r.ctx, "east", 0, &client.Change{Row: []byte("row of a clear"), Seq: 1, Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, nil)}}, nil))
	if stale != api.FollowedNow {
		t.Fatal(stale)
	}
	d, e := wire.NewDecoder(good(master.File(r.ctx, path))), wire.GetEncoder()
	defer e.Release()
	if d.Array() != 8 {
		t.Fatal("the progress has another number of values")
	}
	values := d.Rest()
	for range 6 {
		d.Skip()
	}
	e.Array(6)
	e.Raw(values[:len(values)-len(d.Rest())]) // without the last two
	if err := master.PutFile(r.ctx, path, e.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := r.to.c.Replications().Resume(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	r.equal("after the copy")
}
