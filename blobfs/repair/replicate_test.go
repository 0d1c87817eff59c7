package repair_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/internal/testseed"
)

// I14: one of four nodes dies, and 300 extents regain their replicas without an unnecessary copy.
func TestRepairAfterDeath(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 4, blobfs.Cluster{})
		for range 300 {
			c.put(rng, 1+rng.IntN(5000), c.some(rng, 3)...)
		}
		victim := c.all[rng.IntN(4)]
		held := victim.store.Extents()
		victim.stop()
		time.Sleep(29 * time.Second)
		if c.made() > 0 {
			t.Errorf("%d copies within the grace period", c.made())
		}
		took := c.until(time.Minute, "repaired", func() bool { fewer, _ := c.short(3); return fewer == 0 })
		time.Sleep(5 * time.Second)
		for _, n := range c.all {
			if st := n.store.Repairs(); n.up && slices.Max(st.Short) > 0 {
				t.Errorf("%s reports under-replicated extents 5 s after all had three: %v", n.member.ID, st.Short)
			}
		}
		time.Sleep(5 * time.Minute)
		if c.made() != held {
			t.Errorf("%d copies for %d extents that the node held", c.made(), held)
		}
		clustertest.NoError(t, c.agreed())
		c.readable(c.all[(rng.IntN(3)+1+int(victim.member.ID[1]-'1'))%4])
		t.Logf("%d extents, %v after the grace period", held, took)

		// The returned replicas are surplus. They are dropped, but not at once.
		victim.start()
		time.Sleep(5 * time.Minute)
		if victim.store.Extents() != held || c.made() != held {
			t.Errorf("soon after it returned it has %d of %d extents; %d copies", victim.store.Extents(), held, c.made())
		}
		c.until(20*time.Minute, "trimmed", func() bool { _, more := c.short(3); return more == 0 })
		if fewer, _ := c.short(3); fewer > 0 || c.made() != held {
			t.Errorf("%d extents have too few replicas; %d copies", fewer, c.made())
		}
		clustertest.NoError(t, c.agreed())
	})
}

// Two nodes of five die, the second while the first is being repaired.
func TestRepairAfterTwoDeaths(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		// 40 KiB/s: the first repair takes about 50 s.
		c := newRepairCluster(t, 5, blobfs.Cluster{Repair: repair.Config{RepairBytes: 40 << 10}})
		for range 300 {
			c.put(rng, 40_000, c.some(rng, 3)...)
		}
		c.all[0].stop()
		time.Sleep(40 * time.Second)
		if c.made() == 0 {
			t.Error("nothing repaired after 40 s")
		}
		c.all[1].stop()
		ones := 0
		for id := range c.blobs {
			if c.countHolding(id) == 1 {
				ones++
			}
		}
		// Extents with one replica come first.
		c.until(20*time.Minute, "two replicas each", func() bool { fewer, _ := c.short(2); return fewer == 0 })
		if fewer, _ := c.short(3); ones > 0 && fewer < 20 {
			t.Errorf("%d extents had one replica; when all had two, only %d were short of three", ones, fewer)
		}
		c.until(20*time.Minute, "repaired", func() bool { fewer, _ := c.short(3); return fewer == 0 })
		time.Sleep(5 * time.Minute)
		clustertest.NoError(t, c.agreed())
		c.readable(c.all[4])
	})
}

// A flapping node causes no storm of copies.
func TestFlappingNode(t *testing.T) {
	t.Parallel()
	for _, down := range []time.Duration{20 * time.Second, 40 * time.Second} {
		t.Run(fmt.Sprint(down), func(t *testing.T) {
			seed := testseed.New(t)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				c := newRepairCluster(t, 4, blobfs.Cluster{})
				for range 100 {
					c.put(rng, 1000, c.some(rng, 3)...)
				}
				held := c.all[3].store.Extents()
				for range 20 {
					c.all[3].stop()
					time.Sleep(down)
					c.all[3].start()
					time.Sleep(down)
				}
				c.until(30*time.Minute, "as it was", func() bool { fewer, more := c.short(3); return fewer+more == 0 })
				if most := held * int(down/(30*time.Second)); c.made() > most {
					t.Errorf("%d copies, at most %d were due", c.made(), most)
				}
				clustertest.NoError(t, c.agreed())
			})
		})
	}
}

// Extents that a single node wrote get their replicas when nodes join.
func TestSingleNodesExtents(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 1, blobfs.Cluster{})
		for range 50 {
			c.put(rng, 3000, c.all[0])
		}
		time.Sleep(time.Minute)
		for n := 2; n <= 4; n++ {
			c.add(1 << 30)
			c.until(time.Minute, "replicated", func() bool { fewer, _ := c.short(min(n, 3)); return fewer == 0 })
			time.Sleep(10 * time.Second)
			clustertest.NoError(t, c.agreed())
		}
		if c.made() != 100 {
			t.Errorf("%d copies of 50 extents", c.made())
		}
		c.readable(c.all[3])
	})
}

// A node loses its disks' contents during a short restart.
func TestReplacedDisk(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 3, blobfs.Cluster{})
		for range 50 {
			c.put(rng, 3000, c.some(rng, 3)...)
		}
		time.Sleep(time.Minute)
		c.all[1].stop()
		for id := range c.blobs {
			if c.all[1].FS.Remove("/a/blobs/"+id.String()+".0of1") != nil {
				clustertest.NoError(t, c.all[1].FS.Remove("/b/blobs/"+id.String()+".0of1"))
			}
		}
		c.all[1].start()
		c.until(time.Minute, "repaired", func() bool { fewer, _ := c.short(3); return fewer == 0 })
		if c.made() != 50 {
			t.Errorf("%d copies", c.made())
		}
	})
}

// The same over connections, in real time.
func TestRepairOverConnections(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, clustertest.Config{N: 4, Keep: true, Cluster: blobfs.Cluster{ReplyTimeout: time.Second, Repair: repair.Config{Grace: 300 * time.Millisecond}}})
	data := blobtest.Bytes(1, 900_000)
	var handles []blobfs.Handle
	for range 10 {
		handles = append(handles, clustertest.Put(t, c.All[0].Store, data))
	}
	c.All[1].Kill()
	c.Change("n2", func(m *blobfs.Member) { m.Alive = false })
	deadline := time.Now().Add(30 * time.Second)
	for _, h := range handles {
		for _, ref := range h.Extents {
			for x := (blobfs.ExtentID{Blob: h.ID, Index: ref.Index}); ; time.Sleep(20 * time.Millisecond) {
				have := 0
				for _, n := range []*clustertest.Node{c.All[0], c.All[2], c.All[3]} {
					if st, err := n.StatExtent(t.Context(), x); err == nil && st.CRC == ref.CRC && len(st.Holders.Nodes) == 3 && !slices.Contains(st.Holders.Nodes, "n2") {
						have++
					}
				}
				if have == 3 || slices.Contains(ref.Replicas, "n4") && !slices.Contains(ref.Replicas, "n2") {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("extent %s has %d replicas", x, have)
				}
			}
		}
	}
	clustertest.Get(t, c.All[3].Store, handles[3], data)
	if st := c.All[0].Repairs(); !st.Known || st.Extents == 0 {
		t.Errorf("status: %+v", st)
	}
}

// A node that is reported alive but answers late gets its replicas as soon as it answers, without
// waiting for the backoff to end.
func TestRepairWhenANodeAnswers(t *testing.T) {
	seed := testseed.New(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newRepairCluster(t, 3, blobfs.Cluster{})
		late := c.all[2]
		late.stop()
		for range 30 {
			c.put(rng, 1000, c.all[0], c.all[1])
		}
		time.Sleep(time.Minute)
		late.setMember(func(m *blobfs.Member) { m.Alive = true })
		time.Sleep(77 * time.Second) // it has been tried until a minute after, and would be after a minute more
		late.start()
		took := c.until(time.Hour, "three replicas", func() bool { fewer, _ := c.short(3); return fewer == 0 })
		if took > 25*time.Second {
			t.Errorf("three replicas only after %v", took)
		}
	})
}

// A repair without a target reports whether nodes are full or unreachable.
func TestRepairReportsMissingTarget(t *testing.T) {
	for _, why := range []struct {
		name, want string // want is a regular expression
		capacity   int64  // of the fourth node
		cut        bool
	}{
		{"full", "no node for a replica: 1 others are down or draining, and 1 are full$", 1, false},
		// After the first attempt it is known that the node does not answer.
		{"unreachable", "no node accepted a replica: copy to n4: node is unreachable|no node for a replica: 2 others are down or draining$", 1 << 30, true},
	} {
		t.Run(why.name, func(t *testing.T) {
			seed := testseed.New(t)
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				var log lockedBuffer
				c := newRepairCluster(t, 0, blobfs.Cluster{})
				c.log = slog.NewTextHandler(&log, nil)
				for range 3 {
					c.add(1 << 30)
				}
				for range 10 {
					c.put(rng, 1000, c.all...)
				}
				c.add(why.capacity)
				if why.cut {
					c.mu.Lock()
					for _, n := range c.all[:3] {
						c.cut[[2]string{n.member.ID, "n4"}] = true
					}
					c.mu.Unlock()
				}
				c.all[0].stop()
				time.Sleep(2 * time.Minute)
				reported := regexp.MustCompile(`"extents not repaired" extents=\d+ err="([^"]*)"`).FindAllStringSubmatch(log.String(), -1)
				if len(reported) == 0 || !slices.ContainsFunc(reported, func(m []string) bool { return regexp.MustCompile(why.want).MatchString(m[1]) }) {
					t.Errorf("logged: %q, want %q in it", reported, why.want)
				}
			})
		})
	}
}

// lockedBuffer is a buffer that is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
