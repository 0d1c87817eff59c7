package replog_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/replog"
)

// idleLog is a log of n1 on nodes in virtual time.
type idleLog struct {
	*clustertest.Cluster
	t     *testing.T
	cfg   clustertest.Config
	lists *clustertest.Lists
	id    blobfs.ID
	w     *replog.Writer
}

func newIdleLog(t *testing.T, nodes int) *idleLog {
	x := &idleLog{t: t, lists: clustertest.NewLists(), id: blobfs.NewID()}
	cluster := clustertest.Quick
	cluster.Lists = x.lists
	x.cfg = clustertest.Config{N: nodes, Cluster: cluster, Reserve: clustertest.Reserve, Virtual: true}
	x.Cluster = clustertest.New(t, x.cfg)
	var err error
	x.w, err = x.All[0].ReplicatedLogs().Create(t.Context(), "n1", x.id)
	clustertest.NoError(t, err)
	t.Cleanup(func() { clustertest.NoError(t, x.w.Close()) })
	clustertest.Eventually(t, "two extents on three nodes are open", func() bool { return slices.Equal(x.widths(), []int{3, 3}) })
	return x
}

// open returns the current extent and the standby.
func (x *idleLog) open() []logproto.Extent {
	l := x.lists.LogList(x.t, "n1", x.id)
	n, _ := l.Sealed()
	return l.Extents[n:]
}

// widths returns the numbers of replicas of the current extent and of the standby.
func (x *idleLog) widths() (all []int) {
	for _, e := range x.open() {
		all = append(all, len(e.Replicas))
	}
	return all
}

// fill appends until the writer has left its current extent.
func (x *idleLog) fill() {
	for first := x.open()[0].Seq; x.open()[0].Seq == first; {
		_, err := x.w.Append(x.t.Context(), blobtest.Bytes(1, 50_000))
		clustertest.NoError(x.t, err)
	}
}

// A standby that was prepared while a node was away is replaced when the node is back, although
// nothing is appended.
func TestShortStandbyIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIdleLog(t, 3)
		x.Change("n3", func(m *blobfs.Member) { m.Alive = false })
		x.fill()
		clustertest.Eventually(t, "the next standby lacks n3", func() bool { return slices.Equal(x.widths(), []int{3, 2}) })
		x.Change("n3", func(m *blobfs.Member) { m.Alive = true })
		time.Sleep(5 * time.Second)
		if got := x.widths(); !slices.Equal(got, []int{3, 3}) {
			t.Errorf("the current extent and the standby have %v replicas", got)
		}
	})
}

// A standby whose replicas a node refuses again and again is replaced ever more rarely.
func TestReplacementBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIdleLog(t, 3)
		x.Change("n3", func(m *blobfs.Member) { m.Alive = false })
		x.fill()
		clustertest.Eventually(t, "the next standby lacks n3", func() bool { return slices.Equal(x.widths(), []int{3, 2}) })
		x.SetFree(x.All[2], -64<<10)
		x.Change("n3", func(m *blobfs.Member) { m.Alive, m.FreeBytes = true, 1<<40 }) // the membership does not know that it is full
		x.lists.Mu.Lock()
		before := x.lists.Saves
		x.lists.Mu.Unlock()
		time.Sleep(time.Hour)
		x.lists.Mu.Lock()
		saves := x.lists.Saves - before
		x.lists.Mu.Unlock()
		if saves > 60 {
			t.Errorf("the list was saved %d times in an hour", saves)
		}
		x.SetFree(x.All[2], 1<<30)
		time.Sleep(3 * time.Minute)
		if got := x.widths(); !slices.Equal(got, []int{3, 3}) {
			t.Errorf("with space again, the current extent and the standby have %v replicas", got)
		}
	})
}

// whole reports whether each open extent has three replicas, and each of their nodes has one that
// accepts appends.
func (x *idleLog) whole() bool {
	for _, e := range x.open() {
		for _, node := range e.Replicas {
			if info, err := x.Get(node).StatLogReplica(x.id, e.Seq); err != nil || info.Damage != nil {
				return false
			}
		}
	}
	return slices.Equal(x.widths(), []int{3, 3})
}

// A replica of the current extent or of the standby that its node loses is replaced although nothing is
// appended, and the data in the sealed extent counts as under-replicated.
func TestLostReplicaIsNoticed(t *testing.T) {
	for i, what := range []string{"current", "standby"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newIdleLog(t, 4)
				_, err := x.w.Append(t.Context(), []byte("first"))
				clustertest.NoError(t, err)
				e := x.open()[i]
				clustertest.NoError(t, x.Get(e.Replicas[1]).DropLogReplica(t.Context(), x.id, e.Seq))
				time.Sleep(2 * time.Minute)
				if !x.whole() || slices.ContainsFunc(x.open(), func(now logproto.Extent) bool { return now.Seq == e.Seq }) {
					t.Errorf("extent %d has lost a replica on %s; open extents: %+v", e.Seq, e.Replicas[1], x.open())
				}
				if weak := x.w.Weak() > 0; weak != (what == "current") {
					t.Errorf("the log counts as under-replicated: %v", weak)
				}
				if under := x.All[0].ReplicatedLogs().Writers()[0].Under; (under == 1) != (what == "current") {
					t.Errorf("%d sealed extents count as under-replicated", under)
				}
				x.w.Release(1 << 40)
				time.Sleep(time.Minute)
				if x.w.Weak() > 0 {
					t.Error("under-replicated after all data was released")
				}
			})
		})
	}
}

// The replicas of a node that was restarted accept no appends. The writer of an idle log leaves their
// extent, which is then cut, so that all three replicas are certain of its end.
func TestRestartedReplicaIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIdleLog(t, 3)
		_, err := x.w.Append(t.Context(), []byte("first"))
		clustertest.NoError(t, err)
		e := x.open()[0]
		x.Get("n3").Restart(x.cfg, func() {})
		time.Sleep(2 * time.Minute)
		for _, node := range e.Replicas {
			if info, err := x.Get(node).StatLogReplica(x.id, e.Seq); err != nil || !info.Sealed || info.Length == 0 {
				t.Errorf("%s: %+v, %v", node, info, err)
			}
		}
		if !x.whole() || x.w.Weak() > 0 {
			t.Errorf("open extents: %+v, under-replicated up to %d", x.open(), x.w.Weak())
		}
	})
}

// While the disks are full, a writer keeps an extent that has lost a replica until something is appended.
func TestLostReplicaWithFullDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIdleLog(t, 3)
		for _, n := range x.All {
			x.SetFree(n, -64<<10)
		}
		for _, e := range x.open() {
			clustertest.NoError(t, x.Get("n3").DropLogReplica(t.Context(), x.id, e.Seq))
		}
		time.Sleep(2 * time.Minute)
		if _, err := x.w.Append(t.Context(), []byte("first")); err != nil {
			t.Error(err)
		}
	})
}

// The sealed extents of a log on a node that is dead or draining count as under-replicated, until they
// are released.
func TestSealedExtentsAreCounted(t *testing.T) {
	for what, leave := range map[string]func(*blobfs.Member){
		"dead":     func(m *blobfs.Member) { m.Alive = false },
		"draining": func(m *blobfs.Member) { m.Draining = true },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newIdleLog(t, 4)
				e := x.open()[0]
				x.fill()
				clustertest.Eventually(t, "the first extent is sealed", func() bool { return x.open()[0].Seq != e.Seq && len(x.open()) == 2 })
				under := func() int { return x.All[0].ReplicatedLogs().Writers()[0].Under }
				if n := under(); n != 0 {
					t.Errorf("%d extents count while all nodes are there", n)
				}
				x.Change(e.Replicas[1], leave)
				if n := under(); n != 1 {
					t.Errorf("%d extents count", n)
				}
				time.Sleep(time.Minute)
				x.w.Release(1 << 40)
				time.Sleep(time.Minute)
				if n := under(); n != 0 {
					t.Errorf("%d extents count after they were released", n)
				}
			})
		})
	}
}
