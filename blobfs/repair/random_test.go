package repair_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
)

// faultSchedule is a run of random faults.
type faultSchedule struct {
	*repairCluster
	rng          *rand.Rand
	drainingNode *repairNode
	removed      atomic.Int64
}

// watchDrops makes a node's disk report every replica that is removed: I6, R9.
func (s *faultSchedule) watchDrops(n *repairNode) {
	n.FS.SetHook(func(op vfs.Op) error {
		if op.Kind != vfs.OpRemove || !strings.HasSuffix(op.Name, ".0of1") {
			return nil
		}
		name := op.Name[strings.LastIndex(op.Name, "/")+1:]
		left := 0
		for _, other := range s.all {
			for _, dir := range []string{"/a/blobs/", "/b/blobs/"} {
				if _, _, err := other.FS.Stat(dir + name); err != nil || dir+name == op.Name && other == n {
					continue
				}
				if other == n {
					return nil // replaced by the one in the other folder
				}
				left++
			}
		}
		if s.removed.Add(1); left < 3 {
			s.t.Errorf("%s drops %s; there are %d others", n.member.ID, name, left)
		}
		return nil
	})
}

// fault injects one random fault and returns its description.
func (s *faultSchedule) fault() string {
	var up, down []*repairNode
	for _, n := range s.all {
		if n.up {
			up = append(up, n)
		} else {
			down = append(down, n)
		}
	}
	pick := func(of []*repairNode) *repairNode { return of[s.rng.IntN(len(of))] }
	switch what := s.rng.IntN(12); {
	case what < 2 && len(up) > 4:
		n := pick(up)
		n.stop()
		return "stop " + n.member.ID
	case what < 5 && len(down) > 0:
		n := pick(down)
		n.start()
		return "start " + n.member.ID
	case what < 7:
		ids := s.ids()
		id := ids[s.rng.IntN(len(ids))]
		if good := s.good(id); len(good) > 1 {
			n := s.get(good[s.rng.IntN(len(good))])
			n.flip(id, s.rng.Int64N(s.blobs[id].h.Length))
			return fmt.Sprintf("rot of %s on %s", id, n.member.ID)
		}
	case what < 9:
		from, to := pick(s.all).member.ID, pick(s.all).member.ID
		s.mu.Lock()
		s.cut[[2]string{from, to}] = from != to
		s.mu.Unlock()
		return "cut from " + from + " to " + to
	case what == 9:
		s.mu.Lock()
		clear(s.cut)
		s.mu.Unlock()
		return "nothing is cut"
	case what == 10 && s.drainingNode == nil:
		s.drainingNode = pick(s.all)
		s.drainingNode.setMember(func(m *blobfs.Member) { m.Draining = true })
		return "leaving " + s.drainingNode.member.ID
	case what == 10:
		n := s.drainingNode
		s.drainingNode = nil
		n.setMember(func(m *blobfs.Member) { m.Draining = false })
		return "staying " + n.member.ID
	default:
		for range 5 {
			s.put(s.rng, 1+s.rng.IntN(30_000), s.some(s.rng, 1+s.rng.IntN(3))...)
		}
		return "five blobs"
	}
	return "nothing"
}

// I6, I7, I14: under any faults no replica is dropped unless three others exist, none is lost, and
// in the end each extent has three good ones.
func TestRepairAtRandom(t *testing.T) {
	runs := 2
	if f, err := strconv.ParseFloat(os.Getenv("STELE_SOAK"), 64); err == nil {
		runs = int(float64(runs) * f)
	}
	seed := testseed.New(t)
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { repairAtRandom(t, rand.New(rand.NewPCG(seed, uint64(run)))) })
		})
	}
}

func repairAtRandom(t *testing.T, rng *rand.Rand) {
	var history []string
	cfg := blobfs.Cluster{Repair: repair.Config{
		RepairBytes: 1 << uint(14+rng.IntN(8)), TrimAfter: time.Duration(1+rng.IntN(120)) * time.Second,
		AuditEvery: time.Duration(1+rng.IntN(10)) * time.Minute, ScrubBytes: 64 << 10, ScrubPeriod: 14 * 20 * time.Minute, BalanceGap: 1, Workers: 1 + rng.IntN(8),
	}}
	s := &faultSchedule{repairCluster: newRepairCluster(t, 6, cfg), rng: rng}
	for _, n := range s.all {
		n.setMember(func(m *blobfs.Member) { m.CapacityBytes = 4 << 20 })
		s.watchDrops(n)
	}
	for range 40 {
		s.put(rng, 1+rng.IntN(30_000), s.some(rng, 1+rng.IntN(3))...)
	}
	for range 50 {
		history = append(history, s.fault())
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(40*time.Second)))
		if t.Failed() {
			break
		}
	}
	s.mu.Lock()
	clear(s.cut)
	s.mu.Unlock()
	for _, n := range s.all {
		n.setMember(func(m *blobfs.Member) { m.Draining = false })
		if !n.up {
			n.start()
		}
	}
	start := time.Now()
	least, more := 0, 0
	for least < 3 || more > 0 {
		if time.Since(start) > 3*time.Hour {
			t.Errorf("three hours later the least that an extent has is %d good replicas, and %d have too many", least, more)
			break
		}
		time.Sleep(time.Minute)
		least = s.leastGood()
		_, more = s.short(3)
	}
	time.Sleep(5 * time.Minute)
	if err := s.agreed(); err != nil && !t.Failed() {
		t.Error(err)
	}
	if !t.Failed() {
		s.readable(s.all[0])
	}
	t.Logf("%d copies, %d replicas dropped, settled after %v", s.made(), s.removed.Load(), time.Since(start))
	if t.Failed() {
		t.Log(strings.Join(history, "; "))
		s.describe()
	}
}

// describe logs the state of each extent that does not have three good replicas, as the nodes see
// it.
func (s *faultSchedule) describe() {
	for _, id := range s.ids() {
		x := blobfs.ExtentID{Blob: id}
		if s.countHolding(id) == 3 && len(s.good(id)) == 3 {
			continue
		}
		s.t.Logf("%s is good on %v", x, s.good(id))
		for _, n := range s.all {
			if info, err := n.store.ExtentInfo(x); err == nil {
				s.t.Logf("  %s: list %d %v, corrupt: %v", n.member.ID, info.Holders.Epoch, info.Holders.Nodes, n.store.Corrupt()[x])
			}
		}
	}
}
