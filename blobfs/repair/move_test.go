package repair_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/testseed"
)

// I6: a draining node becomes empty, and is reported safe to remove when that is true and not
// before.
func TestDrain(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 5, blobfs.Cluster{Repair: repair.Config{RepairBytes: 100_000}})
		for range 200 {
			c.put(rng, 1+rng.IntN(20_000), c.some(rng, 3)...)
		}
		for range 20 { // only on the draining node
			c.put(rng, 1000, c.all[0])
		}
		drainingNode := c.all[0]
		drainingNode.setMember(func(m *blobfs.Member) { m.Draining = true })
		check := func() bool {
			st := drainingNode.store.Repairs().Drain
			if !st.Safe {
				return false
			}
			if n := drainingNode.store.Extents(); n > 0 || !st.Draining {
				t.Errorf("reported as safe with %d extents: %+v", n, st)
			}
			return true
		}
		took := c.until(time.Hour, "safe", check)
		if fewer, _ := c.short(3); fewer > 0 {
			t.Errorf("%d extents have too few replicas", fewer)
		}
		drainingNode.stop()
		c.readable(c.all[1])
		// A survivor that saw the same as this node may have made one copy too many.
		c.until(3*time.Hour, "trimmed", func() bool { _, more := c.short(3); return more == 0 })
		clustertest.NoError(t, c.agreed())
		t.Logf("took %v, %d copies", took, c.made())
	})
}

// A draining node repairs extents that only it has: of a blob whose writer failed before the other
// nodes on the list had sealed theirs, and of one that the others dropped or lost after it left
// their list.
func TestDrainOfSingleReplicas(t *testing.T) {
	for name, listed := range map[string]int{"on the list": 0, "off the list": 1} {
		t.Run(name, func(t *testing.T) {
			seed := testseed.New(t)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				c := newRepairCluster(t, 5, blobfs.Cluster{})
				drainingNode := c.all[0]
				time.Sleep(time.Minute) // the first audit would find them
				for range 20 {
					c.putOn(rng, 3000, c.all[:1], c.all[listed:listed+3])
				}
				drainingNode.setMember(func(m *blobfs.Member) { m.Draining = true })
				took := c.until(40*time.Second, "safe", func() bool { return drainingNode.store.Repairs().Drain.Safe })
				if fewer, _ := c.short(3); fewer > 0 {
					t.Errorf("%d extents have too few replicas", fewer)
				}
				clustertest.NoError(t, c.agreed())
				drainingNode.stop()
				c.readable(c.all[4])
				t.Logf("took %v", took)
			})
		})
	}
}

// Nor does a draining node wait for nodes that lack its knowledge: lists name nodes without a
// replica, and leave out some that have one.
func TestDrainWhereListsAreWrong(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 5, blobfs.Cluster{})
		drainingNode := c.all[0]
		time.Sleep(time.Minute) // the first audit would find them
		for range 200 {
			on := append([]*repairNode{drainingNode}, c.some(rng, rng.IntN(4))...)
			slices.SortFunc(on, func(a, b *repairNode) int { return strings.Compare(a.member.ID, b.member.ID) })
			c.putOn(rng, 3000, slices.Compact(on), c.some(rng, 2+rng.IntN(3)))
		}
		drainingNode.setMember(func(m *blobfs.Member) { m.Draining = true })
		took := c.until(40*time.Second, "safe", func() bool { return drainingNode.store.Repairs().Drain.Safe })
		if fewer, _ := c.short(3); fewer > 0 {
			t.Errorf("%d extents have too few replicas", fewer)
		}
		drainingNode.stop()
		c.readable(c.all[4])
		t.Logf("took %v", took)
	})
}

// An extent written to a draining node, by a writer that had chosen it before, delays the drain no
// longer than the extents that were there.
func TestDrainOfWhatIsWrittenMeanwhile(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 5, blobfs.Cluster{})
		drainingNode := c.all[0]
		time.Sleep(time.Minute)
		drainingNode.setMember(func(m *blobfs.Member) { m.Draining = true })
		time.Sleep(5 * time.Second) // all have scanned their extents
		for i := range 20 {
			on := []*repairNode{drainingNode, c.all[1+i%4], c.all[1+(i+1)%4]}
			x := blobfs.ExtentID{Blob: c.put(rng, 3000, on...)}
			for _, n := range on { // as sealing a stream does
				info, err := n.store.ExtentInfo(x)
				clustertest.NoError(t, err)
				clustertest.NoError(t, n.store.Peer().SetHolders(t.Context(), x, blobfs.Holders{Epoch: 2, Nodes: info.Holders.Nodes}))
			}
		}
		if st := drainingNode.store.Repairs().Drain; st.Safe {
			t.Errorf("reported as safe with %d extents: %+v", drainingNode.store.Extents(), st)
		}
		took := c.until(20*time.Second, "safe", func() bool { return drainingNode.store.Repairs().Drain.Safe })
		if fewer, _ := c.short(3); fewer > 0 {
			t.Errorf("%d extents have too few replicas", fewer)
		}
		clustertest.NoError(t, c.agreed())
		t.Logf("took %v", took)
	})
}

// With too few nodes left, or one of them dead, the drain is not safe.
func TestDrainThatIsNotSafe(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 4, blobfs.Cluster{})
		for range 50 {
			c.put(rng, 1000, c.some(rng, 3)...)
		}
		drainingNode, dead := c.all[0], c.all[1]
		held := drainingNode.store.Extents()
		dead.stop()
		drainingNode.setMember(func(m *blobfs.Member) { m.Draining = true })
		time.Sleep(15 * time.Minute)
		if st := drainingNode.store.Repairs().Drain; st.Safe || drainingNode.store.Extents() != held {
			t.Errorf("with a dead node: %+v; has %d of %d", st, drainingNode.store.Extents(), held)
		}
		// The dead node is removed: two replicas are the most possible.
		dead.setMember(func(m *blobfs.Member) { m.Draining = true })
		c.until(time.Hour, "safe", func() bool { return drainingNode.store.Repairs().Drain.Safe })
		if fewer, _ := c.short(2); fewer > 0 || drainingNode.store.Extents() > 0 {
			t.Errorf("%d extents have fewer than two replicas; %d left", fewer, drainingNode.store.Extents())
		}
		// All nodes drain: none drops anything.
		c.all[2].setMember(func(m *blobfs.Member) { m.Draining = true })
		c.all[3].setMember(func(m *blobfs.Member) { m.Draining = true })
		time.Sleep(15 * time.Minute)
		if fewer, _ := c.short(2); fewer > 0 || c.all[2].store.Repairs().Drain.Safe {
			t.Errorf("when all leave, %d extents have fewer than two replicas", fewer)
		}
		c.readable(c.all[3])
	})
}

// A draining node counts the logs that need it.
func TestDrainOfLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := clustertest.NewLists()
		c := newRepairCluster(t, 3, blobfs.Cluster{Lists: lists})
		n := c.all[1]
		id := blobfs.NewID()
		for seq := uint64(1); seq <= 3; seq++ {
			_, err := n.store.OpenLogReplica(t.Context(), local.LogOpen{Log: id, Server: "n1", Seq: seq, Epoch: 1, Salt: 1})
			clustertest.NoError(t, err)
		}
		list := logproto.List{Epoch: 1, Owner: 1, Extents: []logproto.Extent{
			{Seq: 1, Length: 4096, Replicas: []string{"n1", "n2"}}, {Seq: 2, Length: logproto.Open, Replicas: []string{"n2", "n3"}},
		}}
		path := "/logs/n1/" + id.String()
		gen, err := lists.Save(t.Context(), path, replog.EncodeList(&list), 0)
		clustertest.NoError(t, err)
		n.setMember(func(m *blobfs.Member) { m.Draining = true })
		time.Sleep(time.Minute)
		if st := n.store.Repairs().Drain; st.Safe || st.LogExtentsSealed != 1 || st.LogExtentsOpen != 1 {
			t.Errorf("%+v", st)
		}
		clustertest.NoError(t, lists.Delete(t.Context(), path, gen))
		c.until(time.Minute, "safe", func() bool { return n.store.Repairs().Drain.Safe })
	})
}

// A new node is filled until no node is much fuller; then nothing moves any more.
func TestRebalance(t *testing.T) {
	t.Parallel()
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 4, blobfs.Cluster{Repair: repair.Config{BalanceBytes: 50_000}})
		for _, n := range c.all {
			n.setMember(func(m *blobfs.Member) { m.CapacityBytes = 15 << 20 }) // 9 MB of it: 57 %
		}
		for i := range 400 {
			c.put(rng, 30_000, slices.Concat(c.all[:i%4], c.all[i%4+1:])...)
		}
		time.Sleep(20 * time.Minute)
		if c.made() > 0 {
			t.Errorf("%d copies when all are as full", c.made())
		}
		n := c.add(15 << 20)
		c.until(3*time.Hour, "balanced", func() bool {
			if fewer, _ := c.short(3); fewer > 0 {
				t.Fatalf("%d extents have too few replicas", fewer)
			}
			least, most := c.fullness()
			return most-least < 6
		})
		time.Sleep(time.Hour)
		if least, most := c.fullness(); most-least < 1 || most-least > 6 {
			t.Errorf("too much was moved, or too little: %.1f to %.1f %%", least, most)
		}
		made := c.made()
		if want := n.store.Extents(); made != want {
			t.Errorf("%d copies for %d extents", made, want)
		}
		time.Sleep(2 * time.Hour)
		if c.made() != made {
			t.Errorf("%d more copies later", c.made()-made)
		}
		if fewer, more := c.short(3); fewer+more > 0 {
			t.Errorf("%d extents have too few replicas, %d too many", fewer, more)
		}
		clustertest.NoError(t, c.agreed())
		c.readable(n)
	})
}

// fullness returns the fullness of the emptiest and of the fullest node, in percent.
func (c *repairCluster) fullness() (least, most float64) {
	least = 100
	for _, n := range c.all {
		var used int64
		for _, f := range n.store.Stats().Folders {
			used += f.BlobBytes
		}
		full := 100 * float64(used) / float64(n.member.CapacityBytes)
		least, most = min(least, full), max(most, full)
	}
	return least, most
}

// A node that is off the list of an extent keeps its replica until each node that should have one
// has answered that it does: an unreachable node on the list may have lost its own.
func TestReplicaStaysUntilAllOfListAnswer(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 4, blobfs.Cluster{})
		const extents = 20
		for range extents {
			c.putOn(rng, 3000, c.all, c.all[:3])
		}
		silent, spare := c.all[2], c.all[3]
		cut := func(is bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.cut[[2]string{spare.member.ID, silent.member.ID}] = is
		}
		cut(true)
		time.Sleep(3 * time.Hour)
		if n := spare.store.Extents(); n != extents {
			t.Errorf("%d of %d replicas are left although a holder was unreachable", n, extents)
		}
		cut(false)
		c.until(3*time.Hour, "trimmed", func() bool { return spare.store.Extents() == 0 })
		if fewer, more := c.short(3); fewer+more > 0 {
			t.Errorf("%d extents have fewer than three replicas, %d more", fewer, more)
		}
		clustertest.NoError(t, c.agreed())
	})
}
