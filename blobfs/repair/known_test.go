package repair_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/internal/testseed"
)

// reportedShort returns the number of under-replicated extents that the live nodes report, and
// whether all of them report it as known.
func (c *repairCluster) reportedShort() (short int64, known bool) {
	known = true
	for _, n := range c.all {
		if !n.up {
			continue
		}
		st := n.store.Repairs()
		known = known && st.Known
		for _, count := range st.Short {
			short += count
		}
	}
	return short, known
}

// While a lost node is replaced, no status reports that all extents are fully replicated before
// that is true, even if flapping nodes get long grace periods. What a removed node held is copied
// at once.
func TestShortReplicasAreReported(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 3, blobfs.Cluster{Repair: repair.Config{RepairBytes: 64 << 10}})
		for range 200 {
			c.put(rng, 1+rng.IntN(5000), c.all...)
		}
		victim := c.all[rng.IntN(3)]
		const tickless = 300 * time.Millisecond // into a second: repairers check at the beginning of each
		for range 3 {                           // its grace period is then minutes long
			victim.stop()
			time.Sleep(10 * time.Second)
			victim.start()
			time.Sleep(10 * time.Second)
		}
		c.until(time.Minute, "known to have all replicas", func() bool { short, known := c.reportedShort(); return known && short == 0 })
		victim.stop()
		time.Sleep(5*time.Second + tickless)
		c.beforeChanged = func() {
			if _, known := c.reportedShort(); known {
				t.Errorf("known as soon as the membership has changed")
			}
		}
		c.add(1 << 30)
		time.Sleep(5*time.Second + tickless)
		if c.made() > 0 {
			t.Errorf("%d copies while the dead node is waited for", c.made())
		}
		victim.remove()
		c.beforeChanged = nil
		start := time.Now()
		for {
			// Read the status first: it could become true meanwhile.
			short, known := c.reportedShort()
			fewer, _ := c.short(3)
			if known && short == 0 && fewer > 0 {
				t.Fatalf("%v after the removal nodes say that all extents have their replicas; %d of 200 have too few", time.Since(start), fewer)
			}
			if known && short == 0 && fewer == 0 {
				break
			}
			if time.Since(start) > 30*time.Second {
				t.Fatalf("%v after the removal %d of 200 extents have too few replicas; reported: %d, known: %v", time.Since(start), fewer, short, known)
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("all replicas %v after the removal", time.Since(start))
		time.Sleep(time.Minute)
		if short, known := c.reportedShort(); !known || short > 0 {
			t.Errorf("a minute later: short %d, known: %v", short, known)
		}
		clustertest.NoError(t, c.agreed())
	})
}

// A node that starts after another was removed cannot distinguish it from one that it has not yet
// heard of. It waits for the grace period, and reports its figures as unknown during that time.
func TestUnknownNodesGetGracePeriod(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 4, blobfs.Cluster{})
		for range 50 {
			c.put(rng, 1+rng.IntN(5000), c.all[0], c.all[1], c.all[2])
		}
		for _, n := range c.all {
			n.stop()
		}
		c.all[2].remove()
		for _, i := range []int{0, 1, 3} {
			c.all[i].start()
		}
		time.Sleep(29 * time.Second)
		if _, known := c.reportedShort(); known || c.made() > 0 {
			t.Errorf("while a node may be yet to come: known: %v, %d copies", known, c.made())
		}
		c.until(time.Minute, "known to have all replicas", func() bool {
			short, known := c.reportedShort()
			fewer, _ := c.short(3)
			if known && short == 0 && fewer > 0 {
				t.Fatalf("nodes say that all extents have their replicas; %d of 50 have too few", fewer)
			}
			return known && short == 0
		})
		clustertest.NoError(t, c.agreed())
	})
}
