package repair_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
)

// I7, I14: corruption is found by reads and by the scrub, and healed in place.
func TestCorruptionIsHealed(t *testing.T) {
	for _, by := range []string{"read", "scrub", "read of a missing file", "scrub of a missing file"} {
		t.Run(by, func(t *testing.T) {
			by, gone := strings.CutSuffix(by, " of a missing file")
			seed := testseed.New(t)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				c := newRepairCluster(t, 4, blobfs.Cluster{})
				for range 40 {
					c.put(rng, 20_000+rng.IntN(20_000), c.some(rng, 3)...)
				}
				for _, id := range c.ids()[19:] {
					n := c.get(c.good(id)[rng.IntN(3)])
					if gone {
						n.removeFile(id)
					} else {
						n.flip(id, rng.Int64N(20_000))
					}
					if by == "read" {
						clustertest.Get(t, n.store, c.blobs[id].h, c.blobs[id].data)
					}
				}
				c.until(time.Hour, "healed", func() bool { return c.leastGood() == 3 })
				time.Sleep(time.Minute)
				if c.made() > 0 {
					t.Errorf("%d copies to other nodes", c.made())
				}
				clustertest.NoError(t, c.agreed())
				var healed int64
				for _, n := range c.all {
					st := n.store.Repairs()
					if healed += st.Healed; st.Corrupt != 0 {
						t.Errorf("%s: %+v", n.member.ID, st)
					}
				}
				if healed != 21 {
					t.Errorf("%d healed", healed)
				}
			})
		})
	}
}

func (c *repairCluster) get(id string) *repairNode {
	return c.all[slices.IndexFunc(c.all, func(n *repairNode) bool { return n.member.ID == id })]
}

// leastGood returns the lowest number of good replicas of any blob.
func (c *repairCluster) leastGood() int {
	least := len(c.all)
	for id := range c.blobs {
		least = min(least, len(c.good(id)))
	}
	return least
}

// Corrupt replicas, none of which is good as a whole, are healed from their good chunks. If a chunk
// is lost they are kept.
func TestCorruptionEverywhere(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 3, blobfs.Cluster{})
		c.extent = 1 << 20
		for _, n := range c.all {
			n.stop()
			n.start()
		}
		mixed, lost := c.put(rng, 1_000_000, c.all...), c.put(rng, 1_000_000, c.all...)
		for i, n := range c.all {
			n.flip(mixed, int64(i)*300_000)
			n.flip(lost, 500_000)
		}
		c.until(time.Hour, "healed", func() bool { return len(c.good(mixed)) == 3 })
		time.Sleep(2 * time.Hour)
		if n := c.countHolding(lost); n != 3 || len(c.good(lost)) != 0 {
			t.Errorf("%d replicas are kept, %d good", n, len(c.good(lost)))
		}
		for _, n := range c.all {
			if st := n.store.Repairs(); st.Corrupt != 1 || st.Unhealed == 0 || st.Scrub.Found != 2 {
				t.Errorf("%s: %+v", n.member.ID, st)
			}
		}
		delete(c.blobs, lost)
		c.readable(c.all[0])
	})
}

// I6, I7: a surplus replica is not dropped while the others are corrupt and have not been read
// since: they are healed from it.
func TestLastGoodReplicaStays(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprintf("draining-%t", leaves), func(t *testing.T) {
			seed := testseed.New(t)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				c := newRepairCluster(t, 4, blobfs.Cluster{Repair: repair.Config{TrimAfter: time.Hour}})
				corrupt := c.putOn(rng, 20_000, c.all, c.all[:3])
				sound := c.putOn(rng, 20_000, c.all, c.all[:3])
				time.Sleep(30 * time.Minute) // until the scrub has read them
				for _, n := range c.all[:3] {
					n.flip(corrupt, 5000)
				}
				last := c.all[3]
				if leaves {
					last.setMember(func(m *blobfs.Member) { m.Draining = true })
				}
				c.until(3*time.Hour, "dropped", func() bool { return c.countHolding(sound) == 3 })
				c.until(time.Hour, "healed and dropped", func() bool {
					if len(c.good(corrupt)) == 0 {
						t.Fatal("the last good replica was dropped")
					}
					return len(c.good(corrupt)) == 3 && c.countHolding(corrupt) == 3
				})
				if _, err := last.store.ExtentInfo(blobfs.ExtentID{Blob: corrupt}); leaves && err == nil {
					t.Error("a draining node keeps its replica")
				}
				clustertest.NoError(t, c.agreed())
				c.readable(c.all[0])
			})
		})
	}
}

// I7: a copy to a node that has a replica with a corrupt table replaces it, even if the copy is the
// first to find the corruption.
func TestCopyReplacesCorruptTable(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 2, blobfs.Cluster{Repair: repair.Config{Off: true}})
		id := c.put(rng, 20_000, c.all...)
		h := c.blobs[id].h
		c.all[0].flip(id, 20_000)
		again := api.Copy{Ref: api.Ref{Extent: blobfs.ExtentID{Blob: id}, CRC: h.Extents[0].CRC}, From: []string{"n2"}}
		clustertest.NoError(t, c.all[0].store.Peer().Copy(t.Context(), again))
		if good := c.good(id); len(good) != 2 || len(c.all[0].store.Corrupt()) != 0 {
			t.Errorf("good on %v, corrupt on n1: %v", good, c.all[0].store.Corrupt())
		}
	})
}

// Extents in a folder that fails a write are moved at once to another folder, or to other nodes if
// there is none.
func TestRetiredFolder(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprintf("other-full-%t", full), func(t *testing.T) {
			seed := testseed.New(t)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				c := newRepairCluster(t, 4, blobfs.Cluster{})
				for range 40 {
					c.put(rng, 10_000, c.some(rng, 3)...)
				}
				time.Sleep(time.Minute)
				n := c.all[1]
				if full {
					n.FS.SetCapacity("/b", 1)
				}
				n.FS.SetHook(func(op vfs.Op) error {
					if len(op.Name) > 2 && op.Name[:3] == "/a/" {
						return errors.New("broken")
					}
					return nil
				})
				for range 4 { // until one goes to /a
					w, err := n.store.CreateExtent(t.Context(), blobfs.ExtentID{Blob: blobfs.NewID()}, 0)
					if err == nil {
						w.Abort()
					}
				}
				if n.store.RetiredFolders() != 1 {
					t.Fatal("the folder is not retired")
				}
				took := c.until(time.Minute, "repaired", func() bool {
					for id := range c.blobs {
						count := 0
						for _, n := range c.all {
							if x, err := n.store.ExtentInfo(blobfs.ExtentID{Blob: id}); err == nil && !x.Retired {
								count++
							}
						}
						if count < 3 {
							return false
						}
					}
					return true
				})
				if !full && (took > 20*time.Second || c.made() > 0) {
					t.Errorf("took %v, with %d copies", took, c.made())
				}
				c.until(time.Hour, "out of the folder", func() bool {
					_, more := c.short(3)
					return more == 0
				})
				clustertest.NoError(t, c.agreed())
				c.readable(c.all[0])
			})
		})
	}
}

// The scrub continues where it was, and pauses between passes.
func TestScrubPasses(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 1, blobfs.Cluster{Repair: repair.Config{ScrubBytes: 10_000}})
		for range 100 {
			c.put(rng, 45_904, c.all[0]) // including the per-file charge, 5 s each
		}
		n := c.all[0]
		time.Sleep(250 * time.Second)
		before := n.store.Repairs().Scrub
		if before.Position < 0.3 || before.Position > 0.7 || before.Read < 2_300_000 || before.Read > 2_700_000 {
			t.Errorf("after half of the time: %+v", before)
		}
		n.stop()
		n.start()
		time.Sleep(10 * time.Second)
		if after := n.store.Repairs().Scrub; after.Position < before.Position-0.2 {
			t.Errorf("before a restart %+v, after it %+v", before, after)
		}
		time.Sleep(10 * time.Minute)
		end := n.store.Repairs().Scrub
		if end.LastPass.IsZero() || end.Read > 3_500_000 {
			t.Errorf("after a pass: %+v", end)
		}
		time.Sleep(12 * time.Hour)
		if st := n.store.Repairs().Scrub; st.Read != end.Read {
			t.Errorf("it does not rest: %+v", st)
		}
		time.Sleep(13 * time.Hour)
		if st := n.store.Repairs().Scrub; st.Read < end.Read+5_000_000 || !st.LastPass.After(end.LastPass) {
			t.Errorf("no second pass: %+v", st)
		}
	})
}
