package node_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestReplicationLargeCellAndChanges: a cell that is read alone is copied while the row has changes that are read alone, too.
func TestReplicationLargeCellAndChanges(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	src := r.from.c.Table("t")
	set := func(column string, value []byte) {
		t.Helper()
		if err := src.Apply(r.ctx, client.NewRowMutation("large").SetAt(column, 1000, value)); err != nil {
			t.Fatal(err)
		}
	}
	set("g:cell", make([]byte, 5<<20))
	r.add()
	for i, end := 0, time.Now().Add(3*time.Second); time.Now().Before(end); i++ {
		set("g:change", bytes.Repeat([]byte{byte(i)}, 1<<20+1))
	}
	r.equal("after the copy")
}

// TestReplicationHotRows (RE1, RE2): rows that change all the time are copied meanwhile, small and large ones.
func TestReplicationHotRows(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	src := r.from.c.Table("t")
	set := func(row, column string, value []byte) error {
		return src.Apply(r.ctx, client.NewRowMutation(row).SetAt("g:"+column, 1000, value).AddInt("sum:n", 1000, 1))
	}
	for i := range 3 {
		if err := set("large", fmt.Sprint("large", i), make([]byte, 2<<20)); err != nil {
			t.Fatal(err)
		}
	}
	copied := make(chan struct{})
	var writers errgroup.Group
	write := func(row, column string, pause time.Duration) {
		writers.Go(func() error {
			for i := 0; ; i++ {
				select {
				case <-copied:
					return nil
				case <-time.After(pause):
				}
				if err := set(row, column, fmt.Append(nil, i)); err != nil {
					return err
				}
			}
		})
	}
	write("large", "q", 5*time.Millisecond)
	for i := range 8 {
		write("hot", fmt.Sprint("q", i), 0)
	}
	r.add()
	state := ""
	for end := time.Now().Add(20 * time.Second); state != api.ReplicationFollowing && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		state = good(r.to.c.Replications().List(r.ctx))[0].Tables[0].State
	}
	if state != api.ReplicationFollowing {
		t.Errorf("%+v", good(r.to.c.Replications().List(r.ctx)))
	}
	close(copied)
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	r.equal("after the copy")
}

// TestReplicationChangedAfterEachRead (RE2): a row that changes after each of its reads, before the next call, is copied.
func TestReplicationChangedAfterEachRead(t *testing.T) {
	t.Parallel()
	to, s := newBackupCluster(t, 1), newFakeSource(t, "busy")
	value := func(seq uint64) []byte { return fmt.Append(nil, "of change ", seq) }
	s.handlers.Store(&map[string]func(c *rpc.Call){
		api.MethodScanOpen: func(c *rpc.Call) {
			s.next.Add(1)
			s.answer(api.MethodScanOpen, c)
		},
		api.MethodRead: func(c *rpc.Call) {
			at := api.RowPosition{Next: s.next.Add(1) - 1, Families: 2}
			c.Reply(func(e *wire.Encoder) {
				at.Append(e, func() {
					api.AppendRow(e, []byte("r2"), []table.Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 1, Value: value(at.Next - 1)}})
				})
			})
		},
		api.MethodReadChanges: func(c *rpc.Call) {
			var q api.ReadChangesRequest
			if err := q.Decode(&c.Params, c.NumParams, nil); err != nil {
				c.Fail(err)
				return
			}
			r := &api.ChangesResult{End: q.End, Next: s.next.Load(), Families: 2}
			for seq := q.Next; seq > 0 && seq < r.Next; seq++ {
				r.Changes = append(r.Changes, api.Change{Row: []byte("r2"), Seq: seq, Time: 1, Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, value(seq))}, FamilyIDs: []uint32{1}})
			}
			if len(r.Changes) == 0 {
				time.Sleep(min(q.Wait, 5*time.Millisecond))
			}
			c.Reply(pageOf(r))
		},
	})
	if err := to.c.Replications().Create(to.ctx, &client.ReplicationSpec{Name: "busy", Addrs: []string{s.addr}, Tables: []string{"busy"}}); err != nil {
		t.Fatal(err)
	}
	state := api.ReplicationTable{}
	for end := time.Now().Add(20 * time.Second); state.State != api.ReplicationFollowing; time.Sleep(20 * time.Millisecond) {
		if state = good(to.c.Replications().List(to.ctx))[0].Tables[0]; time.Now().After(end) {
			t.Fatalf("%+v after %d changes", state, s.next.Load())
		}
	}
	row := good(to.c.Table("busy").Get(to.ctx, "r2"))
	if want := value(s.next.Load() - 1); row == nil || string(row.Cells[0].Value) != string(want) {
		t.Errorf("row %+v, want %s", row, want)
	}
}
