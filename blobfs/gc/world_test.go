package gc_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/gc"
)

// catalog names blobs. It may fail, pause, and miss blobs.
type catalog struct {
	mu    sync.Mutex
	named map[blobfs.ID]bool
	fails time.Time     // until this time
	pause time.Duration // in the middle of the next call
	midst func()        // called in the middle of the next call
	omits map[blobfs.ID]bool
}

var errCatalog = errors.New("catalog is not readable")

func (c *catalog) Mark(ctx context.Context, mark func(blobfs.ID)) error {
	c.mu.Lock()
	ids := slices.SortedFunc(maps.Keys(c.named), func(a, b blobfs.ID) int { return slices.Compare(a[:], b[:]) })
	fail, pause, midst := time.Now().Before(c.fails), c.pause, c.midst
	c.pause, c.midst = 0, nil
	omits := maps.Clone(c.omits)
	c.mu.Unlock()
	for i, id := range ids {
		if i == len(ids)/2 {
			if fail {
				return errCatalog
			}
			time.Sleep(pause)
			if midst != nil {
				midst()
			}
		}
		if !omits[id] {
			mark(id)
		}
	}
	if fail {
		return errCatalog
	}
	return ctx.Err()
}

func (c *catalog) name(id blobfs.ID, named bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if named {
		c.named[id] = true
	} else {
		delete(c.named, id)
	}
}

// gcBlob is a blob and its users.
type gcBlob struct {
	h       blobfs.Handle
	data    []byte
	owner   *clustertest.Node // has not released it; nil if it has
	named   bool
	readers map[*clustertest.Node]*blobfs.Reader
}

func (b *gcBlob) live() bool { return b.named || b.owner != nil || len(b.readers) > 0 }

// gcLog is a log and the path of its list.
type gcLog struct {
	ID     blobfs.ID
	server string
}

// gcWorld is a cluster in which blobs, logs and nodes come and go while sweepers make rounds.
type gcWorld struct {
	t       *testing.T
	rng     *rand.Rand
	c       *clustertest.Cluster
	cfg     clustertest.Config
	lists   *clustertest.Lists
	catalog *catalog
	blobs   []*gcBlob
	logs    []gcLog
	away    map[*clustertest.Node]time.Time // until when
	work    sync.WaitGroup
	deaf    bool // lists of logs cannot be loaded, except by the test

	mu             sync.Mutex
	rounds, failed int
	passes         int
	total          api.Swept
}

// gcTimes are far enough apart to be distinguished.
var gcTimes = gc.Config{Every: time.Hour, Warn: 30 * time.Minute, Grace: 24 * time.Hour, Away: 12 * time.Hour, Marks: 4}

func newGCWorld(t *testing.T, seed uint64, times gc.Config, keep bool) *gcWorld {
	w := &gcWorld{
		t: t, rng: rand.New(rand.NewPCG(seed, 17)), lists: clustertest.NewLists(), away: map[*clustertest.Node]time.Time{},
		catalog: &catalog{named: map[blobfs.ID]bool{}, omits: map[blobfs.ID]bool{}},
	}
	cluster := clustertest.Quick
	cluster.Lists, cluster.GC = w.lists, times
	w.cfg = clustertest.Config{N: 5, Extent: 64 << 10, Cluster: cluster, Virtual: true, Keep: keep}
	w.c = clustertest.New(t, w.cfg)
	return w
}

// sweeper makes rounds on a node until ctx ends.
func (w *gcWorld) sweeper(ctx context.Context, n *clustertest.Node) {
	s := n.GC().NewSweeper(w.catalog)
	w.work.Go(func() {
		for ctx.Err() == nil {
			r, err := s.Round(ctx)
			w.mu.Lock()
			if w.rounds++; err != nil {
				w.failed++
			}
			w.total.Quarantined += r.Quarantined
			w.total.Removed += r.Removed
			w.total.Warned += r.Warned
			w.passes += r.Passes
			w.mu.Unlock()
			select {
			case <-time.After(gcTimes.Every):
			case <-ctx.Done():
			}
		}
	})
}

func (w *gcWorld) step() {
	n := w.c.All[w.rng.IntN(len(w.c.All))]
	switch k := w.rng.IntN(20); {
	case k < 5:
		w.write(n)
	case k < 9:
		w.change()
	case k < 12:
		w.read(n)
	case k == 12:
		w.cutOff(n)
	case k == 13 && n != w.c.All[0] && n != w.c.All[1]:
		w.restart(n)
	case k == 14:
		w.catalog.mu.Lock()
		w.catalog.fails = time.Now().Add(time.Duration(w.rng.IntN(600)) * time.Minute)
		w.catalog.mu.Unlock()
	case k == 15:
		w.catalog.mu.Lock()
		w.catalog.pause = time.Duration(w.rng.IntN(30)) * time.Hour
		w.catalog.mu.Unlock()
	case k < 18:
		w.log(n)
	case k == 18:
		w.deaf = !w.deaf
	}
}

// cut cuts a node off from all others, or reconnects it.
func (w *gcWorld) cut(n *clustertest.Node, off bool) {
	for _, o := range w.c.All {
		if o != n && (off || w.away[o].IsZero()) {
			w.c.Cut[[2]string{n.ID, o.ID}].Store(off)
			w.c.Cut[[2]string{o.ID, n.ID}].Store(off)
		}
	}
}

func (w *gcWorld) cutOff(n *clustertest.Node) {
	if w.away[n].IsZero() && len(w.away) < 2 {
		w.away[n] = time.Now().Add(time.Duration(w.rng.IntN(10)) * time.Hour)
		w.cut(n, true)
	}
}

func (w *gcWorld) comeBack() {
	for _, n := range w.c.All {
		if until := w.away[n]; !until.IsZero() && !time.Now().Before(until) {
			delete(w.away, n)
			w.cut(n, false)
		}
	}
}

func (w *gcWorld) write(n *clustertest.Node) {
	b := &gcBlob{data: blobtest.Bytes(w.rng.Uint64(), w.rng.IntN(150<<10)), owner: n, readers: map[*clustertest.Node]*blobfs.Reader{}}
	wr, err := n.Create(w.t.Context())
	if err != nil {
		return // no node is up
	}
	_, err = wr.Write(b.data)
	if w.rng.IntN(3) == 0 {
		time.Sleep(time.Duration(w.rng.IntN(200)) * time.Minute) // a writer takes its time
	}
	if err == nil {
		b.h, err = wr.Seal(w.t.Context())
	}
	if err == nil {
		w.blobs = append(w.blobs, b)
	}
}

// change changes the state of a blob.
func (w *gcWorld) change() {
	if len(w.blobs) == 0 {
		return
	}
	b := w.blobs[w.rng.IntN(len(w.blobs))]
	switch k := w.rng.IntN(6); {
	case b.owner != nil && !b.named && k < 5:
		w.catalog.name(b.h.ID, true)
		b.named = true
	case b.owner != nil:
		b.owner.Release(b.h.ID)
		b.owner = nil
	case b.named && k < 5:
		w.catalog.name(b.h.ID, false)
		b.named = false
		if k == 0 && !b.live() {
			_ = w.c.All[0].Delete(w.t.Context(), b.h.ID)
		}
	}
}

// read opens and closes readers, also of blobs that are no longer named.
func (w *gcWorld) read(n *clustertest.Node) {
	if len(w.blobs) == 0 {
		return
	}
	b := w.blobs[w.rng.IntN(len(w.blobs))]
	if r := b.readers[n]; r != nil {
		clustertest.NoError(w.t, r.Close())
		delete(b.readers, n)
	} else if b.live() && w.away[n].IsZero() {
		r, err := n.OpenBlob(w.t.Context(), b.h)
		if err != nil && len(w.away) == 0 {
			w.t.Fatalf("open a live blob: %v", err)
		}
		if err == nil {
			b.readers[n] = r
		}
	}
}

// restart restarts a node, which ends its pins.
func (w *gcWorld) restart(n *clustertest.Node) {
	for _, b := range w.blobs {
		if r := b.readers[n]; r != nil {
			r.Close()
			delete(b.readers, n)
		}
		if b.owner == n {
			b.owner = nil
		}
	}
	n.Kill()
	n.Reopen(w.cfg)
}

// log creates a log that may never be closed, or removes one.
func (w *gcWorld) log(n *clustertest.Node) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	if len(w.logs) > 3 {
		l := w.logs[0]
		w.logs = w.logs[1:]
		if err := w.c.All[0].ReplicatedLogs().Remove(ctx, l.server, l.ID); err != nil {
			w.t.Errorf("remove log: %v", err)
		}
		return
	}
	id := blobfs.NewID()
	wr, err := n.ReplicatedLogs().Create(ctx, n.ID, id)
	if err != nil {
		return
	}
	for range w.rng.IntN(4) {
		if _, err = wr.Append(ctx, blobtest.Bytes(1, w.rng.IntN(60<<10))); err != nil {
			break
		}
	}
	if err == nil && w.rng.IntN(2) == 0 {
		_ = wr.Seal(ctx)
	}
	clustertest.NoError(w.t, wr.Close())
	w.logs = append(w.logs, gcLog{id, n.ID})
}

// check checks invariant R12 on all nodes: whatever is needed is there and was never judged
// garbage.
func (w *gcWorld) check() {
	w.t.Helper()
	for i, b := range w.blobs {
		if !b.live() {
			continue
		}
		for _, ref := range b.h.Extents {
			for _, id := range ref.Replicas {
				x := blobfs.ExtentID{Blob: b.h.ID, Index: ref.Index}
				if _, err := w.c.Get(id).StatExtent(w.t.Context(), x); err != nil {
					w.t.Fatalf("blob %d is needed (named %v, owner %v, %d readers): %s on %s: %v", i, b.named, b.owner != nil, len(b.readers), x, id, err)
				}
			}
		}
	}
	for _, n := range w.c.All {
		if alarm := n.Alarm(); alarm != "" {
			w.t.Fatalf("alarm on %s: %s", n.ID, alarm)
		}
	}
	for _, l := range w.logs {
		for _, x := range w.lists.LogList(w.t, l.server, l.ID).Extents {
			for _, id := range x.Replicas {
				if st, err := w.c.Get(id).StatLogReplica(l.ID, x.Seq); err == nil && !st.QuarantinedSince.IsZero() {
					w.t.Fatalf("extent %d of log %s is in quarantine on %s", x.Seq, l.ID, id)
				}
			}
		}
	}
}

// settle ends all activity and waits for as long as garbage may then last.
func (w *gcWorld) settle() {
	for n := range w.away {
		w.away[n] = time.Now()
	}
	for len(w.away) > 0 {
		w.comeBack()
	}
	w.catalog.mu.Lock()
	w.catalog.fails, w.catalog.pause = time.Time{}, 0
	w.catalog.mu.Unlock()
	for _, b := range w.blobs {
		if b.owner != nil {
			b.owner.Release(b.h.ID)
			b.owner = nil
		}
	}
	w.check()
	// A pause takes at most 30 h. Two rounds, the time in quarantine and one more round follow.
	// Each of them may be one that the second sweeper has just begun.
	time.Sleep(30*time.Hour + gcTimes.Grace + 5*gcTimes.Every)
	w.check()
	for _, n := range w.c.All {
		for _, x := range n.ListExtents(blobfs.ExtentID{Index: -1}, 1000) {
			if i := slices.IndexFunc(w.blobs, func(b *gcBlob) bool { return b.h.ID == x.ID.Blob }); i < 0 || !w.blobs[i].live() {
				w.t.Errorf("%s still has %s, which is garbage", n.ID, x.ID)
			}
		}
		for _, x := range n.Quarantined(blobfs.ExtentID{Index: -1}, 1000) {
			w.t.Errorf("%s still has %s in quarantine", n.ID, x.ID)
		}
		for _, x := range n.LogReplicas() {
			if !slices.ContainsFunc(w.logs, func(l gcLog) bool { return l.ID == x.Log }) {
				w.t.Errorf("%s still has extent %d of log %s, which is removed", n.ID, x.Seq, x.Log)
			}
		}
	}
	for _, b := range w.blobs {
		if b.live() {
			clustertest.Get(w.t, w.c.All[0].Store, b.h, b.data)
		}
		for _, r := range b.readers {
			clustertest.NoError(w.t, r.Close())
		}
	}
}

// R12 and R13 over many schedules of writers, readers, deletions, nodes that restart or are down,
// roots that fail, and two sweepers that pause.
func TestGCRandom(t *testing.T) {
	t.Parallel()
	seeds := uint64(10)
	if soak, err := strconv.ParseUint(os.Getenv("STELE_SOAK"), 10, 32); err == nil {
		seeds *= soak
	}
	first := uint64(1)
	if s, err := strconv.ParseUint(os.Getenv("STELE_SEED"), 10, 64); err == nil {
		first, seeds = s, 1
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("replay: STELE_SEED=%d go test ./blobfs/gc -run TestGCRandom", seed)
			synctest.Test(t, func(t *testing.T) {
				w := newGCWorld(t, seed, gcTimes, false)
				ctx, cancel := context.WithCancel(t.Context())
				defer w.work.Wait()
				defer cancel()
				w.sweeper(ctx, w.c.All[0])
				time.Sleep(20 * time.Minute)
				w.sweeper(ctx, w.c.All[1])
				for range 80 {
					w.lists.SetLoadFails(false)
					w.step()
					w.lists.SetLoadFails(w.deaf)
					time.Sleep(time.Duration(w.rng.IntN(240)) * time.Minute)
					w.comeBack()
					w.lists.SetLoadFails(false)
					w.check()
				}
				w.settle()
				w.mu.Lock()
				defer w.mu.Unlock()
				t.Logf("%d rounds, %d failed, %d passes; %d blobs; %d warned of, %d quarantined, %d removed",
					w.rounds, w.failed, w.passes, len(w.blobs), w.total.Warned, w.total.Quarantined, w.total.Removed)
			})
		})
	}
}
