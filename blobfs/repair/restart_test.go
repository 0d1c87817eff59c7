package repair_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/internal/testseed"
)

// I14: extents written while a node did not answer, although gossip reported it as alive, reach
// that node soon after it answers.
func TestRepairSoonAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clustertest.Config{N: 3, Keep: true, Virtual: true, Cluster: clustertest.Quick}
		c := clustertest.New(t, cfg)
		time.Sleep(10 * time.Second)
		c.All[2].Kill()
		var handles []blobfs.Handle
		for i := range 20 {
			handles = append(handles, clustertest.Put(t, c.All[i%2].Store, blobtest.Bytes(uint64(i), 300_000)))
		}
		time.Sleep(3 * time.Second)
		c.All[2].Reopen(cfg)
		c.UntilWhole(handles)
		for _, n := range c.All {
			if st := n.Repairs(); st.ToCopy != 0 {
				t.Errorf("%s: status when all is whole: %+v", n.ID, st)
			}
		}
	})
}

// I14: a node that reports in an audit that it has lost its replicas, and is silent when they are
// to be made, is not taken for a holder.
func TestRepairAfterSilentLoss(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 3, blobfs.Cluster{})
		for range 5 {
			c.put(rng, 3000, c.all...)
		}
		time.Sleep(10 * time.Second)
		loser := c.all[2]
		loser.stop()
		for id := range c.blobs {
			if loser.FS.Remove("/a/blobs/"+id.String()+".0of1") != nil {
				clustertest.NoError(t, loser.FS.Remove("/b/blobs/"+id.String()+".0of1"))
			}
		}
		reported := map[string]bool{}
		c.mu.Lock()
		c.checked = func(from, to string, all []api.Held) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if to == "n3" && len(all) > 0 && all[0].State == api.Missing {
				reported[from] = true
				c.cut[[2]string{from, to}] = true
			}
		}
		c.mu.Unlock()
		loser.start()
		time.Sleep(20 * time.Second)
		if c.made() != 0 || len(reported) != 2 {
			t.Fatalf("%d copies made of the replicas that a silent node lost; audit answered: %v", c.made(), reported)
		}
		c.mu.Lock()
		c.checked = nil
		clear(c.cut)
		c.mu.Unlock()
		c.until(30*time.Second, "whole", func() bool { fewer, _ := c.short(3); return fewer == 0 })
	})
}

// I14: all nodes are killed while they write, some of them one after the other, and start at
// different times. All that was written is fully replicated soon afterwards.
func TestRepairSoonAfterAllRestart(t *testing.T) {
	t.Parallel()
	seed := testseed.New(t)
	for round := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, round))
			cfg := clustertest.Config{N: 3, Keep: true, Virtual: true, Cluster: clustertest.Quick}
			c := clustertest.New(t, cfg)
			time.Sleep(time.Duration(rng.IntN(100)) * time.Second)
			var mu sync.Mutex
			var handles []blobfs.Handle
			writeSome := func(s *blobfs.Store, seed uint64) {
				for i := range uint64(20) {
					data := blobtest.Bytes(seed+i, 200_000)
					w, err := s.Create(t.Context())
					if err != nil {
						return
					}
					if _, err = w.Write(data); err == nil {
						var h blobfs.Handle
						if h, err = w.Seal(t.Context()); err == nil {
							mu.Lock()
							handles = append(handles, h)
							mu.Unlock()
						}
					}
					if err != nil {
						w.Abort()
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
			var group sync.WaitGroup
			for i, n := range c.All {
				s, seed := n.Store, rng.Uint64()+uint64(i)
				group.Go(func() { writeSome(s, seed) })
			}
			order := rng.Perm(3)
			for _, i := range order {
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				c.All[i].Kill()
			}
			group.Wait()
			for _, i := range rng.Perm(3) {
				n := c.All[i]
				n.Reopen(cfg)
				c.Change(n.ID, func(m *blobfs.Member) { m.Since = time.Now() })
				s, seed := n.Store, rng.Uint64()
				group.Go(func() { writeSome(s, seed) })
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
			mu.Lock()
			soFar := slices.Clone(handles)
			mu.Unlock()
			c.UntilWhole(soFar)
			group.Wait()
			c.UntilWhole(handles)
		})
	}
}
