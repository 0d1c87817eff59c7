package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/verify"
	"github.com/steledb/stele/raftmeta/journal"
	"github.com/steledb/stele/table"
)

// killRun is a run of TestBulkKills.
type killRun struct {
	*testCluster
	t     *testing.T
	disks []*vfs.Mem
	r     *rand.Rand
	dial  wireHost
}

// open returns a client that begins with node i.
func (k *killRun) open(i int) *client.Client {
	k.t.Helper()
	return good(client.Open(context.Background(), k.addrs[i], client.Config{Credential: k.as, Dial: k.dial.Dial}))
}

// cutAfter lets node i lose power at its n-th disk operation from now. cut is closed then.
func (k *killRun) cutAfter(i int, n int64) (cut chan struct{}) {
	cut = make(chan struct{})
	at, done := k.disks[i].Ops()+n, atomic.Bool{}
	k.disks[i].SetHook(func(op vfs.Op) error {
		if op.N < at {
			return nil
		}
		if done.CompareAndSwap(false, true) {
			close(cut)
		}
		return vfs.ErrPowerCut
	})
	return cut
}

// restart ends node i, and starts it on what its disk has without the data that was not synced.
func (k *killRun) restart(i int) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_ = k.nodes[i].Close(ctx) // its disk is gone
	k.nodes[i] = nil
	k.disks[i] = k.disks[i].Crash(k.r)
	k.cfgs[i].FS, k.cfgs[i].OpenRaftLog = k.disks[i], journal.Opener(k.disks[i])
	k.startAll()
}

// part returns the rows of the part of a round.
func (k *killRun) part(round int) (ms []*client.RowMutation) {
	value := make([]byte, 200_000)
	for i := range 40 {
		for j := range value {
			value[j] = byte(k.r.Uint32())
		}
		m := client.NewRowMutation(fmt.Sprintf("r%03d", i))
		ms = append(ms, m.SetAt("f:q", int64(round+1), append([]byte(nil), value...)).SetAt("g:q", int64(round+1), []byte("v")))
	}
	return ms
}

// cells returns how many cells each round has.
func (k *killRun) cells(ctx context.Context, c *client.Client) (map[int]int, error) {
	found := map[int]int{}
	s := c.Table("t").Scan(ctx)
	defer s.Close()
	for s.Next() {
		for _, x := range s.Row().Cells {
			found[int(x.Timestamp)-1]++
		}
	}
	return found, s.Err()
}

// awaitCollected waits until no node has files of the dropped table, nor of parts that no tablet has: they are the only ones of megabytes.
func (k *killRun) awaitCollected(ctx context.Context) {
	k.t.Helper()
	for {
		n, err := k.nodes[0].BlobsAbove(ctx, 1<<20)
		switch {
		case err == nil && n == 0:
			return
		case ctx.Err() != nil:
			k.t.Errorf("%d files of a dropped table and of parts without a tablet are left: %v", n, err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// I1, I3: nodes lose power at any operation of their disks while parts are written and committed. A part that was acknowledged is whole, of another one
// there is all or nothing, and the files of those that were not committed are collected.
func TestBulkKills(t *testing.T) {
	t.Parallel()
	f, disks := memCluster(t, 3)
	seed := testseed.New(t)
	k := &killRun{testCluster: f, t: t, disks: disks, r: rand.New(rand.NewPCG(seed, 3)), dial: wireHost{f.cfgs[0].Network.(wireHost).wires, netip.MustParseAddr("192.0.2.99")}}
	for i := range f.cfgs {
		f.cfgs[i].Tuning.SweepDelay = 10 * time.Millisecond
		f.cfgs[i].Tuning.GC = gc.Config{Every: 100 * time.Millisecond, Warn: time.Millisecond, Grace: time.Millisecond}
	}
	f.startAll()
	ctx := within(t, 4*time.Minute)
	admin := k.open(0)
	for status := good(admin.Nodes().RaftStatus(ctx)); !votersAlive(3)(status); status = good(admin.Nodes().RaftStatus(ctx)) {
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g", Group: "second"}); err != nil {
		t.Fatal(err)
	}
	_ = admin.Close()
	const rounds, cells = 4, 2 * 40
	acked, cuts := map[int]bool{}, 0
	for round := range rounds {
		victim := k.r.IntN(3)
		cut := k.cutAfter(victim, 1+k.r.Int64N(40<<(round%4)))
		c := k.open((victim + 1) % 3)
		written := make(chan error, 1)
		go func() {
			rows, _ := client.BulkOrder(k.part(round))
			if _, _, err := c.Table("t").BulkSpan(ctx, rows); err != nil {
				written <- err
				return
			}
			written <- c.Table("t").BulkWrite(ctx, rows)
		}()
		var err error
		select {
		case <-cut:
			cuts++
			k.restart(victim)
			err = <-written
		case err = <-written:
			k.disks[victim].SetHook(func(vfs.Op) error { return vfs.ErrPowerCut })
			k.restart(victim)
		}
		acked[round] = err == nil
		found, scanErr := k.cells(ctx, c)
		for scanErr != nil && ctx.Err() == nil {
			found, scanErr = k.cells(ctx, c)
		}
		t.Logf("round %d: node %d lost power, the part: %v; found %d cells", round, victim, err, found[round])
		for r := range round + 1 {
			if n := found[r]; n != cells && (acked[r] || n != 0) {
				t.Errorf("after round %d: the part of round %d, acknowledged %v, has %d of %d cells: %v", round, r, acked[r], n, cells, scanErr)
			}
		}
		_ = c.Close()
	}
	if cuts == 0 {
		t.Error("no node lost power while a part was written")
	}
	c := k.open(0)
	defer c.Close()
	if n, err := f.nodes[0].BlobsAbove(ctx, 1<<20); err != nil || n == 0 {
		t.Errorf("%d files with parts: %v", n, err)
	}
	if err := c.Tables().DropNow(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	k.awaitCollected(ctx)
	for i := range f.nodes {
		f.stop(i)
		checker := verify.Config{FS: k.disks[i], OpenRaftLog: f.cfgs[i].OpenRaftLog}
		if _, err := checker.Folders(context.Background(), f.cfgs[i].DataDirs, masterkeys.Source{}, func(p verify.Problem) { t.Errorf("node %d: %+v", i, p) }); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
}
